package vpp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/cores"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

// Kinds of the steps for a lane of VPP's own.
const (
	// kindStartup is a file in Dir that VPP can be started with; a value is its text.
	kindStartup = "vpp-startup"
	// kindThreads verifies the CPUs of the threads of a running VPP, as words. Only VPP itself sets them, when
	// it starts. The target is the lane's name.
	kindThreads = "vpp-threads"
)

// Dir has a startup.conf for each lane of VPP's own. It goes with a reboot, as the lanes do.
const Dir = "/run/isolane-vpp"

const (
	// ownStartup is where VPP's packages have it.
	ownStartup = "/etc/vpp/startup.conf"
	// usualStartup stands in its place where there is none.
	usualStartup = "unix {\n  nodaemon\n  cli-listen /run/vpp/cli.sock\n}\n"
)

func startupFile(of string) string { return filepath.Join(Dir, of+".conf") }

// IsSwitch returns true.
func (Path) IsSwitch() bool { return true }

// PossibleSwitch says why a lane cannot be VPP's own: vppctl asks one VPP. It need not run.
func (Path) PossibleSwitch(others []string) error {
	if len(others) > 0 {
		return fmt.Errorf("spec.switch: lane %s is VPP's own: expected one such lane, with the CPUs of all nodes",
			others[0])
	}
	return nil
}

// SwitchSteps returns the steps that tell VPP what its lane has: /etc/vpp/startup.conf, followed by the
// sections that `isolane cores --for vpp` prints.
func (Path) SwitchSteps(h host.Host, lanes []plan.Lane) (steps []journal.Step, err error) {
	own, err := fs.ReadFile(host.Live(), ownStartup[1:])
	if errors.Is(err, fs.ErrNotExist) {
		own, err = []byte(usualStartup), nil
	}
	for _, l := range lanes {
		d, derr := cores.New("vpp", cores.Request{Lane: l, Cores: h.CoresOf(h.Online()),
			MemoryNodes: h.MemoryNodes()})
		if err = errors.Join(err, derr); err != nil {
			return nil, err
		}
		text, serr := startup(string(own), d.Text)
		if serr != nil {
			return nil, serr
		}
		main, workers := cores.Main(l)
		steps = append(steps, journal.Step{Kind: kindStartup, Target: startupFile(l.Name), After: text},
			journal.Step{Kind: kindThreads, Target: l.Name, After: threads(cpuset.Of(main), workers), Optional: true})
	}
	return steps, err
}

// startup returns a complete startup.conf: the host's own without its section cpu, and the sections of a
// lane. VPP reads two sections of the same name as one (vlib_call_all_config_functions).
func startup(own, sections string) (string, error) {
	own = regexp.MustCompile(`(?m)#.*$`).ReplaceAllString(own, "")
	own = regexp.MustCompile(`(^|[\s}])cpu\s*\{[^{}]*\}`).ReplaceAllString(own, "$1")
	if regexp.MustCompile(`(^|[\s}])cpu\s*\{`).MatchString(own) {
		return "", fmt.Errorf("%s: expected a section cpu without braces in it", ownStartup)
	}
	own = regexp.MustCompile(`\s*\n\s*\n`).ReplaceAllString(strings.TrimSpace(own), "\n") // empty lines
	return "# Made by isolane: another file is lost with the lane. Its sections but cpu are those of\n# " +
		ownStartup + " where there is one.\n" + own + "\n\n" + sections, nil
}

func threads(main, workers cpuset.Set) string {
	if workers.IsEmpty() {
		return "main " + main.String()
	}
	return "main " + main.String() + ", workers " + workers.String()
}

// parseThreads returns the CPUs of VPP's threads from the output of `show threads`; before 26.10 they follow
// the scheduling policy. A thread without a CPU has -1 or n/a.
func parseThreads(text string) string {
	var main, workers cpuset.Set
	line := regexp.MustCompile(
		`(?m)^\s*\d+\s+vpp_(\w+)\s+(?:workers\s+)?\d+\s+(?:\S+ \(\S+\)\s+)?(-?\d+|n/a)(?:\s|$)`)
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		cpu, err := cpuset.Parse(m[2])
		switch {
		case err != nil:
			return "vpp_" + m[1] + " on no CPU of its own"
		case m[1] == "main":
			main = cpu
		default:
			workers = workers.Union(cpu)
		}
	}
	return threads(main, workers)
}

type startupOp struct{}

// Check lets a step name only a file in its directory.
func (startupOp) Check(s journal.Step) error {
	name, ends := strings.CutSuffix(filepath.Base(s.Target), ".conf")
	if filepath.Dir(s.Target) != Dir || !ends {
		return fmt.Errorf("%q: expected a file NAME.conf in %s", s.Target, Dir)
	}
	return netdev.CheckName(name)
}

func (startupOp) Read(_ context.Context, s journal.Step) (string, error) {
	text, err := os.ReadFile(s.Target)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(text), err
}

// Write replaces the file atomically: a VPP that starts meanwhile reads either the old or the new one.
func (startupOp) Write(_ context.Context, s journal.Step, value string) error {
	if value == "" {
		err := os.Remove(s.Target)
		_ = os.Remove(Dir) // with the last lane
		return err
	}
	if err := os.Mkdir(Dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	next := s.Target + ".next"
	err := os.WriteFile(next, []byte(value), 0o644)
	if err == nil {
		err = os.Rename(next, s.Target)
	}
	return err
}

// Name says what it is.
func (startupOp) Name(s journal.Step) string { return "startup.conf of VPP " + s.Target }

// Describe says in one line what changes.
func (o startupOp) Describe(s journal.Step) (name, from, to string) {
	return o.Name(s), inLine(s.Before), inLine(s.After)
}

// DescribeDrift says what was found.
func (o startupOp) DescribeDrift(s journal.Step) (expected, found string) {
	found, err := o.Read(context.Background(), s)
	if err != nil {
		return inLine(s.After), err.Error()
	}
	return inLine(s.After), inLine(found)
}

// inLine returns a file on one line, without its comments.
func inLine(text string) string {
	text = regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(text, "")
	return strings.Join(strings.Fields(text), " ")
}

// Shell says what to write.
func (startupOp) Shell(s journal.Step) string {
	if s.After == "" {
		return "rm " + s.Target
	}
	return fmt.Sprintf("mkdir -p %s && echo '%s' > %s", Dir, inLine(s.After), s.Target)
}

type threadsOp struct{}

func (threadsOp) Check(s journal.Step) error { return netdev.CheckName(s.Target) }

// Read returns the wanted value if no VPP runs: it will have that when it starts.
func (threadsOp) Read(ctx context.Context, s journal.Step) (string, error) {
	out, err := ask(ctx, "show threads")
	if errors.As(err, new(notRunning)) {
		return s.After, nil
	}
	if err != nil {
		return netpath.Unread(ctx, err)
	}
	return parseThreads(out), nil
}

// Write fails: VPP's threads keep the CPUs of its start.
func (threadsOp) Write(_ context.Context, s journal.Step, _ string) error {
	return fmt.Errorf("VPP runs with other CPUs: start it anew with vpp -c %s", startupFile(s.Target))
}

// Name says what it is.
func (threadsOp) Name(journal.Step) string { return "threads of VPP" }

// DescribeDrift says where the threads are.
func (o threadsOp) DescribeDrift(s journal.Step) (expected, found string) {
	found, err := o.Read(context.Background(), s)
	if err != nil {
		found = err.Error()
	}
	return s.After, found + ": start VPP anew with vpp -c " + startupFile(s.Target)
}

// Shell returns the command that starts VPP.
func (threadsOp) Shell(s journal.Step) string { return "vpp -c " + startupFile(s.Target) }
