package checkpoint
import ("testing";"time")
func TestZZ(t *testing.T){
 for _, b := range []budget{{restarts:1,repeats:1},{crashes:1,losses:1,syncs:1},{crashes:1,timers:1},{crashes:1,repeats:1},{crashes:2},{crashes:1,restarts:1}} {
  s:=time.Now(); x:=explore(newWorld(rules{}, b))
  t.Logf("%+v: %d %d %d %v %v", b, x.states,x.steps,x.rests,time.Since(s), x.violation)
 }
}
