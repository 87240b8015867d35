// Package lanes is Isolane as a library: it plans lanes beside those in force, puts them in force, starts
// workloads in them and releases them. The commands are calls of it.
//
//	l, err := lanes.Open(ctx, lanes.Options{Paths: drivers.Paths(), Ops: drivers.Ops()}) // netpath/drivers
//	applied, err := l.PutLanes(ctx, []lane.Lane{web}, false)
//	cmd, err := l.Start(ctx, "web", []string{"nginx"}, nil)
//	released, err := l.Release(ctx, "web")
//	err = l.Close()
//
// A program that imports it calls Entry first in main: it is started again to become a workload.
package lanes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/unit"
)

// Options say where the lanes are. The zero value means this host.
type Options struct {
	Dir   string                // of the record of what is in force; "" is /run/isolane
	Paths []netpath.Path        // network paths that lanes may have, the best first and the plainest last
	Ops   map[string]journal.Op // further kinds of steps, those of network paths
	// CPUs and MemoryNodes are those that lanes may have; if empty, those that this process may use. So a
	// program that is itself confined, as in a pod, can plan for the whole machine.
	CPUs, MemoryNodes cpuset.Set
	// Others are CPUs that lanes may not have and housekeeping has. Without them, daemons, kernel threads and
	// interrupts that are kept off lanes go to what lanes leave of CPUs, as in a part of a machine.
	Others cpuset.Set
	// Memory limits the bytes that lanes may have of each NUMA node in addition to hugepages from its pools.
	// Hugepages limits these pages, by node and size in bytes. What is not named is not limited.
	Memory    map[int]uint64
	Hugepages map[int]map[uint64]uint64
	// Wait is called if another process is changing the host. Then Open waits until that has ended, or the
	// context ends. If Wait is nil, Open fails at once with a *journal.BusyError.
	Wait func(journal.Holder)
	root fs.FS // set by tests; nil is this host
}

// Complete fills in the defaults.
func (o Options) Complete() Options {
	o.Dir = cmp.Or(o.Dir, journal.Dir)
	if o.root == nil {
		o.root = host.Live()
	}
	ops := map[string]journal.Op{}
	maps.Copy(ops, o.Ops)
	maps.Copy(ops, knob.Ops("/"))
	ops[knob.Spreader] = change.Daemon("/", entry, spreading, o.Dir)
	o.Ops = ops
	return o
}

// Drivers returns the drivers that put these lanes in force.
func (o Options) Drivers() enforce.Drivers { return enforce.Drivers{Ops: o.Ops, Paths: o.Paths} }

func (o Options) allowed() host.Allowance {
	return host.Allowance{CPUs: o.CPUs, MemoryNodes: o.MemoryNodes, Others: o.Others, Memory: o.Memory,
		Hugepages: o.Hugepages}
}

// Lanes are the lanes in force on a host. Only one process at a time can have them open for changes.
type Lanes struct {
	*enforce.Lanes
	o Options
}

// Open opens the lanes in force for changes. It first releases lanes that were made for a process which has
// ended, and returns their names. The caller closes the Lanes.
func Open(ctx context.Context, o Options) (l *Lanes, expired []string, err error) {
	if os.Getenv(entered) != "" {
		return nil, nil, errors.New("this program was started to become a workload, " +
			"and did not call lanes.Entry first in main")
	}
	o = o.Complete()
	inner, err := open(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	inner.Allowed = o.allowed()
	l = &Lanes{inner, o}
	if expired, err = l.Expire(ctx); err != nil {
		return nil, expired, errors.Join(err, l.Close())
	}
	return l, expired, nil
}

func open(ctx context.Context, o Options) (*enforce.Lanes, error) {
	if o.Wait == nil {
		return enforce.Open(o.Dir, o.root, o.Drivers())
	}
	return enforce.OpenWait(ctx, o.Dir, o.root, o.Drivers(), o.waiting)
}

func (o Options) waiting(by *journal.BusyError) {
	if o.Wait != nil {
		o.Wait(by.Holder)
	}
}

// await waits until nobody changes the host.
func (o Options) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return journal.Await(ctx, o.Complete().Dir, o.waiting)
}

const patience = 30 * time.Second

// OpenPatiently is like Open, but waits up to half a minute for other processes.
func OpenPatiently(ctx context.Context, o Options) (*Lanes, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return Open(ctx, o.patient())
}

// patient makes o wait for other processes, even if no Wait is set.
func (o Options) patient() Options {
	if o.Wait == nil {
		o.Wait = func(journal.Holder) {}
	}
	return o
}

// Want plans lanes beside those in force, on the host as it was before them, and returns that host too. See
// enforce.Lanes.Want.
func (l *Lanes) Want(lanes []lane.Lane, prune bool) (plan.Placement, host.Host, error) {
	p, h, err := l.Lanes.Want(lanes, prune)
	p.Housekeeping = p.Housekeeping.Union(l.o.Others.Difference(p.CPUs()))
	return p, h, err
}

// Need returns a *process.CapabilityError if this process lacks what a command needs to change the host.
func Need(command string) error {
	return process.Need(command+" changes cpusets, interrupts and tasks", "DAC_OVERRIDE", "SYS_ADMIN",
		"SYS_NICE")
}

// ErrNothing says that lanes are to be placed, but none are in force and none are wanted.
var ErrNothing = errors.New("no lanes are in force, and none are wanted")

// DiffFiles says what putting the lanes of files in force would change, as Declared returns them.
func (l *Lanes) DiffFiles(ctx context.Context, files []string, stdin io.Reader, prune bool) (
	d enforce.Difference, err error) {
	want, err := l.Declared(files, stdin)
	if err != nil {
		return d, err
	}
	p, _, err := l.Want(want, prune)
	if err != nil {
		return d, plan.At(err, want)
	}
	return l.Diff(ctx, p)
}

// Declared reads the lanes of files, see lane.ReadAll. It fails with ErrNothing if there is no file, and no
// lane in force.
func (l *Lanes) Declared(files []string, stdin io.Reader) (want []lane.Lane, err error) {
	if err = l.Recorded(); err == nil && len(files) > 0 {
		want, err = lane.ReadAll(files, stdin)
	} else if err == nil && len(l.Placement.Lanes) == 0 {
		err = ErrNothing
	}
	return want, err
}

// Look opens the lanes in force for reading only. It works while another process changes them.
func Look(o Options) (*Lanes, error) {
	o = o.Complete()
	l, err := enforce.Look(o.Dir, o.root, o.Drivers())
	if err != nil {
		return nil, err
	}
	l.Allowed = o.allowed()
	return &Lanes{l, o}, nil
}

// Free returns what no lane has, and the largest lanes that would fit.
func (l *Lanes) Free() (solver.Room, error) {
	v, err := l.View()
	if err != nil {
		return solver.Room{}, err
	}
	return solver.Free(v.Host, l.Placement)
}

// None returns lanes as if none were in force, for a user who may not see those that are.
func None(o Options) *Lanes {
	o = o.Complete()
	return &Lanes{enforce.None(o.root, o.Drivers()), o}
}

// Applied is the result of putting a placement in force.
type Applied struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"` // Applied
	Placement  plan.Placement        `json:"placement"`
	Settings   int                   `json:"settings"` // of the host, changed for the lanes
	Change     enforce.Change        `json:"change"`   // what this call has changed
	Refused    []enforce.RefusedStep `json:"refused"`
	Left       []Left                `json:"left"`
	Waiting    []enforce.Waiting     `json:"waiting"`
	Untested   []string              `json:"untested"`
	Warnings   []string              `json:"warnings"` // of attached workloads, and of hugepages
	Units      []unit.CPUs           `json:"units"`    // of systemd, that ask for the lanes' CPUs
}

// Left is a setting that was not taken back, because somebody else has changed it since.
type Left struct {
	Name   string `json:"name"`
	Before string `json:"before"`
	Set    string `json:"set"`
	Found  string `json:"found"`
	// NeededBy is who relies on it, where nobody has changed it.
	NeededBy string `json:"neededBy,omitempty"`
}

// PutEach puts the lanes of files in force; files has a slice for each file. It first tries all together, so
// that each lane gets the place that Put would give it. If that fails it puts in force what it can, file by
// file. It calls done with the result of each Put. last is the last successful result. left says why the
// lanes of the other files are not in force.
func (l *Lanes) PutEach(ctx context.Context, files [][]lane.Lane, done func(Applied, error)) (last Applied,
	left []error) {
	try := func(want ...lane.Lane) error {
		a, err := l.PutLanes(ctx, want, false)
		if a.Kind == "" {
			return err
		}
		if done(a, err); err == nil {
			last = a
		}
		return err
	}
	if len(files) == 0 || try(slices.Concat(files...)...) == nil {
		return last, nil
	}
	for before := -1; len(files) != before; { // again after a success: another lane may be near to it
		before, left = len(files), nil
		files = slices.DeleteFunc(files, func(f []lane.Lane) bool {
			err := try(f...)
			if err != nil {
				left = append(left, err)
			}
			return err == nil
		})
	}
	return last, left
}

// PutLanes plans lanes as Want does, and puts them in force. It returns the zero Applied if they cannot be
// planned, else what Put does.
func (l *Lanes) PutLanes(ctx context.Context, want []lane.Lane, prune bool) (Applied, error) {
	l.Ask(ctx, want, prune)
	p, _, err := l.Want(want, prune)
	if err != nil {
		return Applied{}, plan.At(err, want)
	}
	return l.Put(ctx, p)
}

// Put puts a placement in force. Attached workloads follow their lanes. Lanes go to the cgroups that their
// declarations name, or Put fails with a *TargetError. If it fails it restores what was in force.
func (l *Lanes) Put(ctx context.Context, p plan.Placement) (Applied, error) {
	a := Applied{APIVersion: plan.APIVersion, Kind: "Applied", Placement: p, Warnings: []string{}}
	err := l.declaredGroups(p)
	if err == nil {
		a.Change, err = l.Lanes.Put(ctx, p, func(at attached.Workload) error {
			came, aerr := l.attach(ctx, at)
			for _, w := range came.Warnings {
				a.Warnings = append(a.Warnings, "lane "+at.Lane+": "+w)
			}
			return aerr
		})
	}
	if err != nil {
		return a, err
	}
	a.Settings, a.Left, a.Waiting = l.Settings(), l.left(), l.Waiting()
	a.Refused, a.Untested = append([]enforce.RefusedStep{}, l.Refused...), append([]string{}, l.Untested()...)
	short, err := l.ShortOfHugepages()
	if err != nil {
		return a, err
	}
	a.Warnings = append(a.Warnings, short...)
	units, err := unit.AskingCPUs(l.o.root, p)
	a.Units = append([]unit.CPUs{}, units...)
	return a, err
}

func (l *Lanes) left() []Left {
	all := []Left{}
	for _, a := range l.Left {
		all = append(all, Left{a.Step.Target, a.Step.Before, a.Step.After, a.Now, a.NeededBy})
	}
	return all
}

// Released is the result of releasing lanes.
type Released struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // Released
	Lanes      []string `json:"lanes"`
	TakenBack  int      `json:"takenBack"` // settings that are as before the lanes again
	Settings   int      `json:"settings"`  // settings that are still changed, for lanes that stay
	Left       []Left   `json:"left"`
	// Waiting may concern other lanes too.
	Waiting []enforce.Waiting `json:"waiting"`
}

// Unfinished says what the release waits for; nil if all is taken back.
func (r Released) Unfinished() error {
	for _, w := range r.Waiting {
		for _, name := range r.Lanes {
			if slices.Contains(w.Lanes, name) {
				return fmt.Errorf("lane %s is not taken back as a whole: %s", name, w.Reason)
			}
		}
	}
	return nil
}

// Release takes lanes back; their processes continue outside. Errors: *enforce.NoLaneError if one is not in
// force; *enforce.NoRecordError if there are lanes without a record, which stay as they are.
func (l *Lanes) Release(ctx context.Context, names ...string) (Released, error) {
	r := Released{APIVersion: plan.APIVersion, Kind: "Released", Lanes: append([]string{}, names...)}
	p, err := l.Without(names...)
	if err != nil {
		return r, cmp.Or(l.Recorded(), err)
	}
	before := l.Settings()
	err = l.Apply(ctx, p)
	if host.IsLive(l.o.root) {
		change.RecallInterruptThreads()
	}
	r.Settings, r.Left, r.Waiting = l.Settings(), l.left(), l.Waiting()
	r.TakenBack = before - r.Settings - len(r.Left)
	if err == nil {
		err = cmp.Or(l.forget(names), l.Recorded())
	}
	return r, err
}
