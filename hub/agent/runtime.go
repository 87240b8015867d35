package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
)

// processes runs Instances as processes in their lanes. They outlive the agent: the next one finds them in
// their cgroups.
type processes struct {
	lanes   lanes.Options
	users   Users
	dir     string               // of what was started, and what it has printed
	ended   chan struct{}        // gets something when a process has ended
	began   map[string]time.Time // when this agent has started what, by name
	problem map[string]string    // why an Instance does not run, by its UID; "": it does
}

// pause is how long a process that ends at once is left alone.
const pause = 5 * time.Second

func (p *processes) record(name string) string { return filepath.Join(p.dir, name+".json") }

// log has what a command has printed since it began.
func (p *processes) log(name string) string { return p.record(name) + ".log" }

// Ensure starts what does not run. What runs by another spec is ended and started anew.
func (p *processes) Ensure(ctx context.Context, uid string, i desired.Instance) (err error) {
	defer func() {
		if p.problem[uid] = ""; err != nil {
			p.problem[uid] = err.Error()
		}
	}()
	started, err := os.ReadFile(p.record(i.Name))
	ours := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, pids, err := p.group(i.Name)
	noLane := isNoLane(err)
	switch {
	case err != nil && !noLane:
		return err
	case err == nil && !ours:
		return fmt.Errorf("a lane %s is in force that the hub has not asked for: expected isolane release "+
			"%[1]s, or another name", i.Name)
	case len(pids) > 0 && bytes.Equal(started, i.Spec):
		return trim(p.log(i.Name))
	}
	var spec api.InstanceSpec
	if err = json.Unmarshal(i.Spec, &spec); err == nil {
		err = p.users.may(spec) // before what runs is ended
	}
	if err != nil {
		return err
	}
	if bytes.Equal(started, i.Spec) && time.Since(p.began[i.Name]) < pause {
		return fmt.Errorf("it has ended less than %s after it began: see %s", pause, p.log(i.Name))
	}
	if err = p.kill(ctx, pids); err != nil {
		return err
	}
	return p.start(ctx, i)
}

func isNoLane(err error) bool {
	_, is := errors.AsType[*enforce.NoLaneError](err)
	return is
}

// start brings the lane in force, and a process into it.
func (p *processes) start(ctx context.Context, i desired.Instance) error {
	l, _, err := lanes.OpenPatiently(ctx, p.lanes)
	if err != nil {
		return err
	}
	spec, err := p.place(ctx, l, i)
	if err == nil {
		err = p.launch(l, i.Name, spec)
	}
	return errors.Join(err, l.Close())
}

// place brings the lane of an Instance in force, and returns what is to run in it.
func (p *processes) place(ctx context.Context, l *lanes.Lanes, i desired.Instance) (
	spec api.InstanceSpec, err error) {
	if err = json.Unmarshal(i.Spec, &spec); err != nil {
		return spec, err
	}
	want, err := api.Lane(i.Name, spec.Lane)
	if err != nil {
		return spec, err
	}
	placed, _, err := l.Want([]lane.Lane{want}, false)
	if err == nil { // the record first: what is in force and has none is somebody else's
		err = os.WriteFile(p.record(i.Name), i.Spec, 0o600)
	}
	if err == nil {
		_, err = l.Put(ctx, placed)
	}
	return spec, err
}

// launch starts a program in a lane: it is there from its first instruction on.
func (p *processes) launch(l *lanes.Lanes, name string, spec api.InstanceSpec) error {
	with, err := p.as(name, spec)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(p.log(name), os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd, err := l.StartDetached(name, with, spec.Command, func(cmd *exec.Cmd) {
		cmd.Stdout, cmd.Stderr = out, out
	})
	if err != nil {
		return err
	}
	p.began[name] = time.Now()
	go func() {
		_ = cmd.Wait() // it is started again, however it ended
		select {
		case p.ended <- struct{}{}:
		default:
		}
	}()
	return nil
}

// End ends all that is in the lane, and releases it.
func (p *processes) End(ctx context.Context, uid string, i desired.Instance) error {
	delete(p.problem, uid)
	if _, err := os.Stat(p.record(i.Name)); errors.Is(err, fs.ErrNotExist) {
		return nil // it has never begun; a lane of its name is somebody else's
	}
	_, pids, err := p.group(i.Name)
	if err == nil {
		if err = p.kill(ctx, pids); err != nil {
			return err
		}
		var l *lanes.Lanes
		if l, _, err = lanes.OpenPatiently(ctx, p.lanes); err != nil {
			return err
		}
		_, err = l.Release(ctx, i.Name)
		err = errors.Join(err, l.Close())
	}
	if err != nil && !isNoLane(err) {
		return err
	}
	delete(p.began, i.Name)
	return errors.Join(os.RemoveAll(p.private(i.Name)), os.Remove(p.record(i.Name)),
		os.RemoveAll(p.log(i.Name)), os.RemoveAll(before(p.log(i.Name))))
}

// group is the cgroup of a lane in force, and what is in it; the error is an *enforce.NoLaneError where
// there is none.
func (p *processes) group(name string) (enforce.LaneGroup, []int, error) {
	l, err := lanes.Look(p.lanes)
	if err != nil {
		return enforce.LaneGroup{}, nil, err
	}
	if _, err = l.Lane(name); err != nil {
		return enforce.LaneGroup{}, nil, err
	}
	groups, err := l.Groups()
	if err != nil {
		return enforce.LaneGroup{}, nil, err
	}
	g := groups[slices.IndexFunc(groups, func(g enforce.LaneGroup) bool { return g.Lane.Name == name })]
	pids, err := cgroup.Processes(host.Live(), g.Dir)
	return g, pids, err
}

// kill asks processes to end, and ends those that have not after five seconds.
func (p *processes) kill(ctx context.Context, pids []int) error {
	for n := 0; len(pids) > 0; n++ {
		signal := syscall.SIGTERM
		if n >= 50 {
			signal = syscall.SIGKILL
		}
		if n == 100 {
			return fmt.Errorf("processes %v do not end", pids)
		}
		left := pids[:0]
		for _, pid := range pids {
			if n == 0 || n >= 50 {
				_ = syscall.Kill(pid, signal) // it may have ended
			}
			if syscall.Kill(pid, 0) == nil {
				left = append(left, pid)
			}
		}
		if pids = left; len(pids) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}
