package thalweg

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/thalweg/thalweg/stream"
)

// Start begins to run app in the background, from where its last run was
// committed, and returns once its state is restored. A topology with mistakes is
// refused with all of them. ctx bounds the start, not the job: that runs until it
// fails, is stopped, comes to its end (StopAt), or the node is closed.
func (n *Node) Start(ctx context.Context, app *stream.Topology) (*stream.Job, error) {
	if app == nil {
		return nil, errors.New("thalweg: no topology to run: make one with stream.New")
	}
	leave, err := n.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	j, err := stream.Start(ctx, n.env(), app)
	if err != nil {
		return nil, fmt.Errorf("thalweg: start job %q: %w", app.Name(), err)
	}
	n.mu.Lock()
	n.jobs[j] = app
	n.mu.Unlock()
	n.watchers.Go(func() { // ends with the job, which Close stops
		<-j.Done()
		n.mu.Lock()
		delete(n.jobs, j)
		n.mu.Unlock()
	})
	return j, nil
}

// env is what a job needs of the node.
func (n *Node) env() stream.Env {
	return stream.Env{
		Plane:       n.plane,
		Backend:     n.options.State,
		StateDir:    path.Join(n.dir, stateFolder),
		Cache:       n.cache,
		StateMemory: n.options.StateMemory,
		Logger:      n.logger,
		Now:         n.options.Log.Now,
	}
}

// Compare tells what would become of the state of app's job if app were started now: which
// steps go on from their state, which begin without, and what state no step has any more.
// Nothing is started or changed. That values are stored as another type is found by Start.
func (n *Node) Compare(app *stream.Topology) (stream.Evolution, error) {
	if app == nil {
		return stream.Evolution{}, errors.New("thalweg: no topology to compare: make one with stream.New")
	}
	leave, err := n.enter()
	if err != nil {
		return stream.Evolution{}, err
	}
	defer leave()
	e, err := stream.Compare(n.env(), app)
	if err != nil {
		return stream.Evolution{}, fmt.Errorf("thalweg: compare job %q: %w", app.Name(), err)
	}
	return e, nil
}

// Run runs app until it fails or comes to its end (StopAt). When ctx ends first,
// or the node is closed, the job stops as Job.Stop does, after a last checkpoint,
// and Run returns nil; the next run goes on from there.
func (n *Node) Run(ctx context.Context, app *stream.Topology) error {
	j, err := n.Start(ctx, app)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil // stopped before it began
		}
		return err
	}
	select {
	case <-j.Done():
		return j.Wait()
	case <-ctx.Done():
		return j.Stop(context.WithoutCancel(ctx))
	}
}
