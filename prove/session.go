package prove

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/schedule"
	"isolane.dev/isolane/prove/settings"
	"isolane.dev/isolane/prove/testbed"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/process"
)

// ErrInput says that the user has asked for something impossible, and must ask for something else.
var ErrInput = errors.New("bad input")

// ErrInterrupted says that the session ended before its last run. What was measured is stored.
var ErrInterrupted = errors.New("interrupted")

// Options says what to prove, and with which drivers.
type Options struct {
	Scenario scenario.Scenario
	Kinds    scenario.Drivers
	Paths    []testbed.Path // that the scenario may name
	Lane     string         // in force on this host; the probes run beside it; "": the scenario's lane
	Pods     bool           // the application and its neighbours are pods of this node
	Static   string         // the node for pods whose kubelet assigns CPUs; "": none
	Mode     string         // quick, standard or proof
	Cells    []string       // names; none: the scenario's; "all": all combinations
	stored   []results.Cell // of a resumed session, including those of its searches
	Seed     uint64
	Dir      string // of the results
	Resume   bool   // resume the session in Dir
	Self     string // path of the isolane binary; "": this program
	Root     fs.FS  // of the host
	Lanes    lanes.Options
	Versions map[string]string // of the programs, for the record
	// Plan is called once before the first run, Progress before each run. Either may be nil.
	Plan     func(Estimate)
	Progress func(Progress)
}

// runner makes a session.
type runner struct {
	testbed.Bed
	own    cpuset.Set // CPUs of this process; runs keep it off the application's
	boots  schedule.Boots
	unmade []string // beside a lane in force, and why
}

// StoppedError says why a session ended before its last run. What was measured is stored.
type StoppedError struct {
	error
	hint string
}

func (e *StoppedError) Unwrap() error { return e.error }

// Hint says how the session goes on.
func (e *StoppedError) Hint() string { return e.hint }

func (o Options) stopped(err error, runs int) error {
	hint := "go on with: isolane prove --resume " + o.Dir
	switch {
	case errors.Is(err, ErrDrifted): // not before the lanes are in force again
		hint = ""
	case errors.Is(err, ErrInterrupted):
		err = fmt.Errorf("%w: %d runs are stored in %s", err, runs, o.Dir)
	default:
		hint = fmt.Sprintf("%d runs are stored; %s", runs, hint)
	}
	return &StoppedError{err, hint}
}

// Estimate is what lies ahead, told before the session starts.
type Estimate struct {
	Runs, Cells, Blocks int
	Takes               time.Duration
	Boots               int // over which the blocks are spread
	Searches            int
	Most                time.Duration // for the searches
	Seed                uint64
	Notes               []string
	Awaits              []results.Await // cells that are measured in other boots
}

// Progress is how far a session is.
type Progress struct {
	Done, Runs    int
	Block, Blocks int // block 0 is the warm-up block
	Cell          string
	Left          time.Duration
	Void          int // runs so far
	// Search is the search in progress, at Point. Then Done and Runs count its trials in Cell, and Left is an
	// upper bound.
	Search, Point string
	Capacity      string // the probe whose capacity is measured; then Done and Runs count those runs
}

// Run runs a session and stores each run in o.Dir. If it ends early it returns what was measured and a
// *StoppedError, of ErrInterrupted if the context has ended; if cells are left that need another boot, an
// *AwaitsError. It always leaves the host as it found it, or the error says what could not be restored.
func Run(ctx context.Context, o Options) (results.Session, error) {
	s, r, err := open(ctx, o)
	if err != nil {
		return results.Session{}, err
	}
	defer r.close()
	err = r.all(ctx, o, &s)
	if _, waits := errors.AsType[*schedule.AwaitsError](err); len(s.Runs) > 0 && !s.Complete && !waits {
		s.Stopped = &results.Stop{Interrupted: ctx.Err() != nil, Why: err.Error()}
		if s.Stopped.Interrupted {
			s.Stopped.Why = context.Cause(ctx).Error()
		}
		_ = results.Write(o.Dir, s) // a full disk has its error already
		err = o.stopped(err, len(s.Runs))
	}
	return s, err
}

// all makes the runs that are due in this boot, and the trials of the searches.
func (r *runner) all(ctx context.Context, o Options, s *results.Session) error {
	todo := r.todo(s)
	unknown, err := r.unknown(s)
	if err != nil {
		return err
	}
	takes := r.Estimate() * time.Duration(len(todo))
	for _, p := range unknown {
		takes += (1 + capacityRuns) * r.EstimateOf([]scenario.Probe{p})
	}
	if o.Plan != nil {
		o.Plan(Estimate{Runs: len(todo), Cells: r.here(*s), Blocks: s.Scenario.Blocks,
			Boots: s.Scenario.Boots, Takes: takes, Searches: len(s.Searches), Most: r.searching(*s),
			Seed: s.Scenario.Seed, Notes: s.Notes, Awaits: s.Awaits})
	}
	if err = r.calibrate(ctx, o, s, unknown); err != nil {
		return err
	}
	began := time.Now()
	failures := schedule.NewFailing(r.here(*s))
	for i := 0; i < len(todo); i++ { // it grows
		at := todo[i]
		if o.Progress != nil {
			o.Progress(progress(*s, r, todo, i, time.Since(began)))
		}
		cell := s.Cells[slices.IndexFunc(s.Cells, func(c results.Cell) bool { return c.Name == at.Cell })]
		r.Draw = fmt.Sprintf("block %d", at.Block)
		run, err := r.Run(ctx, cell)
		if err != nil {
			return interrupted(ctx, err)
		}
		run.Block, run.Boot, run.Again = at.Block, r.boots.Number, at.Again
		if at.Block == 0 {
			run.Dropped = "warm-up block"
		}
		s.Runs = append(s.Runs, run)
		s.Ended = time.Now()
		if err = results.Write(o.Dir, *s); err != nil {
			return err
		}
		probes := r.NotLeftOut(cell.Name, r.Scenario.Spec.Probes)
		if err = failures.Add(run, probes); err != nil {
			return err
		}
		todo = schedule.Repeat(todo, i, run, len(probes))
	}
	if err := r.search(ctx, o, s); err != nil {
		return err
	}
	if len(s.Awaits) > 0 {
		return &schedule.AwaitsError{Dir: o.Dir, Cells: len(s.Cells), Awaits: s.Awaits}
	}
	return cmp.Or(r.unchanged(ctx, o.Dir, s), schedule.Counts(*s, r.Scenario.Spec.Probes))
}

// here returns how many cells are measured in this boot.
func (r *runner) here(s results.Session) (n int) {
	for _, c := range s.Cells {
		if r.boots.Here(c) {
			n++
		}
	}
	return n
}

// todo returns the runs still to be made in this boot. The cells of the others wait.
func (r *runner) todo(s *results.Session) []schedule.Slot {
	now, later := schedule.Remaining(*s, r.boots)
	s.Awaits = r.boots.Awaits(*s, later)
	return now
}

func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return ErrInterrupted
	}
	return errors.Join(ErrInterrupted, err)
}

func progress(s results.Session, r *runner, todo []schedule.Slot, i int, spent time.Duration) Progress {
	p := Progress{Done: i, Runs: len(todo), Block: todo[i].Block, Blocks: s.Scenario.Blocks, Cell: todo[i].Cell}
	each := r.Estimate()
	if i > 0 {
		each = spent / time.Duration(i)
	}
	p.Left = each * time.Duration(len(todo)-i)
	for _, run := range s.Runs {
		if len(run.Void) > 0 {
			p.Void++
		}
	}
	return p
}

// open checks everything that can be checked before the host is touched.
func open(ctx context.Context, o Options) (s results.Session, _ *runner, err error) {
	if o.Self == "" {
		if o.Self, err = os.Executable(); err != nil {
			return s, nil, err
		}
	}
	o.Lanes = o.Lanes.Complete()
	var pods *testbed.Pods
	if o.Pods { // the node part removes their leftovers, while it may change lanes
		if pods, err = testbed.FindPods(ctx, o.Static, o.Lanes); err != nil {
			return s, nil, err
		}
	}
	own, err := task.Affinity(0)
	if err != nil {
		return s, nil, err
	}
	l, _, err := lanes.Open(ctx, o.Lanes) // its lock keeps out a second session
	if err != nil {
		return s, nil, err
	}
	r := &runner{own: own, Bed: testbed.Bed{Lanes: l, Journal: journal.None(nil), Self: o.Self, Root: o.Root,
		Kinds: o.Kinds, Scenario: o.Scenario, Paths: o.Paths, Pods: pods}}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	last, err := journal.Look(o.Lanes.Dir, "prove", o.Lanes.Ops)
	if err != nil {
		return s, nil, err
	}
	if len(last.Pending()) > 0 { // even the CPUs that this process may use are as the crash left them
		return s, nil, errors.New("a session that crashed has left changes on this host: run isolane recover")
	}
	j, err := l.Beside("prove")
	if err != nil {
		return s, nil, err
	}
	r.Journal = j
	v, err := l.View()
	if err != nil {
		return s, nil, err
	}
	h := v.Host
	if o.Lane != "" {
		if err = r.beside(ctx, o); err != nil {
			return s, nil, err
		}
	}
	for _, name := range r.Groups() {
		dir, derr := knob.GroupDir(h, name)
		if derr != nil {
			return s, nil, derr
		}
		if _, derr = fs.Stat(o.Root, strings.TrimPrefix(dir, "/")); derr == nil {
			return s, nil, fmt.Errorf("%s is there already: isolane release a lane of that name first", dir)
		}
	}
	now := environment(h, o.Versions)
	now.Settings = settings.Read(o.Root)
	if s, err = newSession(o, r.Scenario, now); err != nil {
		return s, nil, err
	}
	if err = r.enter(o, &s, now); err != nil {
		return s, nil, err
	}
	r.Settings, r.Seed = s.BootOf(results.Run{Boot: r.boots.Number}).Settings, s.Scenario.Seed
	if o.Lane != "" {
		if s.Lane, err = r.proved(s.Lane); err != nil {
			return s, nil, err
		}
	}
	if r.Pods != nil {
		if s.Pods, err = r.Pods.Described(s.Pods); err != nil {
			return s, nil, fmt.Errorf("%w: %w", ErrInput, err)
		}
	}
	r.Mode, r.Capacity = o.Scenario.Spec.Modes[s.Scenario.Mode], map[string]float64{}
	for _, c := range s.Capacities {
		r.Capacity[c.Probe] = c.Rate
	}
	if err = r.layOut(ctx, h, l.Placement, &s, byName(o.Cells)); err != nil {
		return s, nil, err
	}
	if err = r.leaveOut(ctx, o, &s); err != nil {
		return s, nil, err
	}
	notes := append(layout.Notes(r.Layouts, s.Cells), r.notes()...)
	if b := r.Scenario.StealPercent(); b != scenario.UsualStealBudget {
		notes = append(notes, fmt.Sprintf("A run is void beyond a steal of %g%%, the scenario's budget; the usual "+
			"one is %g%%.", b, scenario.UsualStealBudget))
	}
	notes = append(notes, excludedNotes(s.Scenario.Excluded)...)
	for _, n := range []string{r.BehindNote(), r.FunctionsNote(s.Cells), r.CongestionNote()} {
		if n != "" {
			notes = append(notes, n)
		}
	}
	if slices.Contains(strings.Fields(h.Kernel.Cmdline), emulated) {
		notes = append(notes, "Made in the lab: the processor is emulated in software, so the figures mean "+
			"nothing.")
	}
	for _, n := range notes {
		if !slices.Contains(s.Notes, n) { // a resumed session has it
			s.Notes = append(s.Notes, n)
		}
	}
	if !o.Resume {
		err = results.Create(o.Dir)
	}
	return s, r, err
}

// close lets other processes change the host. If an undo failed, its run has reported that.
func (r *runner) close() {
	_ = process.KeepTo(r.own)
	_ = r.Journal.Close()
	_ = r.Lanes.Close()
}

// emulated is on the command line of the kernels in the lab (docs/lab.md).
const emulated = "isolane.lab=emulated"

func environment(h host.Host, versions map[string]string) results.Environment {
	return results.Environment{Hostname: h.Hostname, Kernel: h.Kernel.Release + " " + h.Kernel.Version,
		Cmdline: h.Kernel.Cmdline,
		BootID:  h.Kernel.BootID, CPUModel: h.Kernel.CPUModel, Hypervisor: h.Kernel.Hypervisor != nil &&
			*h.Kernel.Hypervisor, Online: h.Online(),
		IdleDriver: h.Kernel.IdleDriver, IdleGov: h.Kernel.IdleGovernor, Clocksource: h.Kernel.Clocksource,
		MemoryBytes: h.MemoryBytes, Versions: versions}
}
