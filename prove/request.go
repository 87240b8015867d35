package prove

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/prove/programs"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/testbed"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/pod"
	"isolane.dev/isolane/runtime/process"
)

// Request is a session as its user asks for it.
type Request struct {
	Scenario string   // name or file; "": edge
	Mode     string   // quick, standard or proof; "": quick
	Cells    []string // see Options
	Seed     uint64   // 0: a random one
	Lane     string
	Runtime  string           // of application and neighbours: pod, or "" for processes
	Static   string           // for pods: a second node of this machine, whose kubelet assigns CPUs; "": none
	Dir      string           // of the results; "": a new one, named by scenario and time
	Kinds    scenario.Drivers // that a scenario may name
	Resume   string           // of the session to resume, which has its own scenario and mode; "": a new one
}

// Options reads the scenario of a new session, or of the one to resume.
func (r Request) Options() (Options, error) {
	if r.Resume != "" {
		return r.resumed()
	}
	o := Options{Kinds: r.Kinds, Lane: r.Lane, Cells: r.Cells, Dir: r.Dir, Mode: cmp.Or(r.Mode, "quick"),
		Seed: cmp.Or(r.Seed, rand.Uint64N(1e9)+1)} //nolint:gosec // G404: any order will do, and it is printed
	var err error
	if o.Scenario, err = Load(cmp.Or(r.Scenario, "edge"), r.Kinds); err != nil {
		return o, err
	}
	switch r.Runtime {
	case "":
		if r.Static != "" {
			return o, errors.New("--static-node: expected --runtime " + testbed.Pod)
		}
		o.Scenario = o.Scenario.WithoutPods()
	case testbed.Pod:
		if o.Scenario, err = o.Scenario.InPods(r.Static != ""); err == nil {
			err = testbed.PodsCan(o.Scenario)
		}
		if err != nil {
			return o, fmt.Errorf("--runtime: %w", err)
		}
		o.Pods, o.Static = true, r.Static
	default:
		return o, fmt.Errorf("--runtime: %q: expected %s", r.Runtime, testbed.Pod)
	}
	if o.Dir == "" {
		o.Dir = filepath.Join("isolane-results", o.Scenario.Metadata.Name+"-"+time.Now().Format("20060102-150405"))
	}
	if _, err = o.Scenario.Cells(r.Cells); err != nil {
		err = fmt.Errorf("--cells: %w", err)
	}
	return o, err
}

func (r Request) resumed() (Options, error) {
	o := Options{Kinds: r.Kinds, Dir: r.Resume, Resume: true}
	if r.Scenario != "" || r.Mode != "" {
		return o, errors.New("--resume goes on with the stored scenario and mode: name only the directory")
	}
	s, err := results.Read(r.Resume)
	if err != nil {
		return o, err
	}
	if s.Lane != nil {
		o.Lane = s.Lane.Name
	}
	if s.Pods != nil {
		o.Pods, o.Static = true, s.Pods.Static
	}
	o.Mode = s.Scenario.Mode
	for _, c := range results.EveryCell(&s) {
		o.stored = append(o.stored, *c)
	}
	o.Scenario, err = scenario.Parse(filepath.Join(r.Resume, results.File)+": scenario.source",
		strings.NewReader(s.Scenario.Source), r.Kinds)
	return o, err
}

// MissingError says what a session needs that this user or machine does not have.
type MissingError struct {
	What   string
	Remedy string // a command
}

func (e *MissingError) Error() string { return e.What }

// Hint returns the remedy.
func (e *MissingError) Hint() string { return e.Remedy }

// needful is a factor that needs more of the host than programs.
type needful interface {
	Missing(level string, root fs.FS) (what, remedy string) // what is "" if nothing is missing
}

// measured returns the cells of the session and of its searches.
func (o Options) measured() ([]results.Cell, error) {
	if o.Resume {
		return o.stored, nil
	}
	cells, err := o.Scenario.Cells(o.Scenario.Named(o.Cells, o.Mode))
	if err == nil && o.Lane == "" {
		s := results.Session{Searches: newSearches(o.Scenario, o.Scenario.Spec.Modes[o.Mode], o.Cells)}
		for _, c := range results.EveryCell(&s) {
			cells = append(cells, *c)
		}
	}
	return cells, err
}

// lacksAlgorithm fails with a *MissingError if TCP in a network namespace cannot have the scenario's
// algorithm: there only those may be set that the kernel allows (ip-sysctl). If it does not list them, a run
// finds out.
func lacksAlgorithm(s scenario.Scenario, root fs.FS) error {
	name := s.Spec.CongestionControl
	text, err := fs.ReadFile(root, "proc/sys/net/ipv4/tcp_allowed_congestion_control")
	allowed := strings.Fields(string(text))
	if name == "" || err != nil || slices.Contains(allowed, name) {
		return nil
	}
	return &MissingError{fmt.Sprintf("spec.congestionControl: %q: expected what this kernel allows in network "+
		"namespaces: %s", name, strings.Join(allowed, ", ")),
		fmt.Sprintf("name one of these, or: modprobe tcp_%s; sysctl -w "+
			"net.ipv4.tcp_allowed_congestion_control='%[2]s %[1]s'", name, strings.Join(allowed, " "))}
}

// Ready checks what a session needs before reading the host. It fails with a *MissingError or a
// *process.CapabilityError.
func (o Options) Ready(ctx context.Context) error {
	if err := process.NeedRoot("prove", "it makes network namespaces and cpusets"); err != nil {
		return err
	}
	cells, err := o.measured()
	if err != nil {
		return err
	}
	if err := installed(o.Scenario.Programs(cells, o.Kinds.Probes)); err != nil {
		return err
	}
	if _, err := exec.LookPath(pod.Kubectl); o.Pods && err != nil {
		return &MissingError{pod.Kubectl + " is not installed",
			"apt-get install kubernetes-client, of the version of the cluster"}
	}
	for _, p := range o.Scenario.Spec.Probes {
		if p.Optional {
			continue // whether it can run is decided when the session begins
		}
		if err := lacks(ctx, p, o.Kinds.Probes, host.Live()); err != nil {
			return err
		}
	}
	if err := lacksAlgorithm(o.Scenario, host.Live()); err != nil {
		return err
	}
	for _, f := range o.Scenario.Spec.Factors {
		n, ok := f.Factor.(needful)
		for _, c := range cells {
			if !ok || c.Levels[f.Name] == "" {
				continue
			}
			if what, remedy := n.Missing(c.Levels[f.Name], host.Live()); what != "" {
				return &MissingError{what, remedy}
			}
		}
	}
	return nil
}

// VersionsOf returns the versions of the programs that make the scenario's figures. isolane is this
// program's.
func (o Options) VersionsOf(ctx context.Context, isolane string) map[string]string {
	found := map[string]string{"isolane": isolane}
	cells, err := o.measured()
	if err != nil {
		return found
	}
	all := o.Scenario.Programs(cells, o.Kinds.Probes)
	for _, p := range o.Scenario.Spec.Probes {
		if p.Optional {
			all = append(all, p.Programs(o.Kinds.Probes)...)
		}
	}
	for _, program := range all {
		// crun makes a folder when it is called, which /proc refuses; its version is printed all the same.
		if version := programs.Version(ctx, program.Name, "XDG_RUNTIME_DIR=/proc"); version != "" {
			found[program.Name] = version
		}
	}
	return found
}
