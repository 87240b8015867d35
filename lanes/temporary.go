package lanes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/runtime/process"
)

// Ended is the result of RunTemporary.
type Ended struct {
	Code    int   // of the command; 128 and more: a signal has ended it
	Outside int   // processes of the lane that continue outside of it
	Release error // why the lane is still in force
}

// Write prints for people what is left of the lane, if anything is.
func (e Ended) Write(w io.Writer, name string) {
	if e.Outside > 0 {
		fmt.Fprintf(w, "isolane: %s of lane %s: outside of it from now on\n",
			quantity.Count(e.Outside, "process"), name)
	}
	if e.Release != nil {
		fmt.Fprintf(w, "isolane: lane %s is still in force: %v: isolane recover releases it\n", name, e.Release)
	}
}

// RunTemporary makes a lane, runs a command in it in the foreground, and always releases it. If this process
// is killed, the command is killed too, and whoever opens the lanes next releases the lane. Before the
// command starts it calls began with the lanes that were released in that way, and with the error if the lane
// is not in force. Errors: *exec.Error, *plan.Refusal, *enforce.NoRecordError.
func RunTemporary(ctx context.Context, o Options, want lane.Lane, with With, argv []string,
	began func(expired []string, err error)) (e Ended, err error) {
	if _, err = exec.LookPath(argv[0]); err != nil {
		return e, err
	}
	name := want.Metadata.Name
	with.Parent = os.Getpid()
	names, err := putFor(ctx, o, with.Parent, want)
	began(names, err)
	if err != nil {
		return e, err
	}
	defer func() { e.Outside, e.Release = giveBack(context.WithoutCancel(ctx), o, name) }()
	inside, err := json.Marshal(with)
	if err != nil {
		return e, err
	}
	child := exec.Command("/proc/self/exe",
		slices.Concat([]string{entry, becoming, o.Complete().Dir, name, string(inside)}, argv)...)
	child.Args[0] = os.Args[0]
	child.Env = append(os.Environ(), entered+"=1")
	e.Code, err = process.Foreground(ctx, child)
	return e, err
}

// putFor puts a lane in force that lives as long as a process. It returns the lanes that were released
// because their process has ended.
func putFor(ctx context.Context, o Options, pid int, want lane.Lane) (expired []string, err error) {
	l, expired, err := OpenPatiently(ctx, o)
	if err != nil {
		return expired, err
	}
	defer l.Close()
	if err = l.Recorded(); err != nil {
		return expired, err
	}
	if err = l.SetOwner(want.Metadata.Name, pid); err != nil {
		return expired, err
	}
	_, err = l.PutLanes(ctx, []lane.Lane{want}, false)
	return expired, err
}

// giveBack releases a lane of putFor, unless somebody else has, and returns how many processes were in it.
func giveBack(ctx context.Context, o Options, name string) (processes int, err error) {
	l, _, err := OpenPatiently(ctx, o)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	groups, err := l.Groups()
	for _, g := range groups {
		if g.Lane.Name == name {
			processes = g.Processes
		}
	}
	if _, gone := l.Lane(name); err != nil || gone != nil {
		return processes, err
	}
	_, err = l.Release(ctx, name)
	return processes, err
}
