package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Machine is what figures were measured on, as far as it can be told.
type Machine struct {
	OS     string    `json:"os"`
	Arch   string    `json:"arch"`
	Kernel string    `json:"kernel,omitempty"`
	CPU    string    `json:"cpu,omitempty"`
	Cores  int       `json:"cores"`
	Memory string    `json:"memory,omitempty"`
	Go     string    `json:"go"`
	Commit string    `json:"commit,omitempty"`
	At     time.Time `json:"at"`
}

func thisMachine() Machine {
	return Machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(),
		At:     time.Now().UTC().Truncate(time.Second),
		Kernel: strings.TrimSpace(contents("/proc/sys/kernel/osrelease")),
		CPU:    after(contents("/proc/cpuinfo"), "model name"),
		Memory: gigabytes(after(contents("/proc/meminfo"), "MemTotal")),
		Commit: commit(),
	}
}

// contents is empty where there is no such file.
func contents(name string) string {
	b, _ := os.ReadFile(name)
	return string(b)
}

// after is what follows the first "name:" of a text, in its line.
func after(text, name string) string {
	_, rest, _ := strings.Cut(text, name)
	line, _, _ := strings.Cut(rest, "\n")
	_, value, _ := strings.Cut(line, ":")
	return strings.Join(strings.Fields(value), " ")
}

// gigabytes turns "24683620 kB" into "24 GB".
func gigabytes(text string) string {
	var kilobytes int64
	if _, err := fmt.Sscanf(text, "%d kB", &kilobytes); err != nil {
		return text
	}
	return fmt.Sprintf("%d GB", (kilobytes+1<<19)>>20)
}

func commit() string {
	id, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

func (m Machine) String() string {
	text := fmt.Sprintf("%d × %s, %s/%s %s, %s", m.Cores, m.CPU, m.OS, m.Arch, m.Kernel, m.Go)
	if m.Memory != "" {
		text += ", " + m.Memory + " of memory"
	}
	if m.Commit != "" {
		text += ", commit " + m.Commit
	}
	return text + ", " + m.At.Format(time.DateOnly)
}
