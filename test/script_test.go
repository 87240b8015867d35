// Package test runs scripts against the built binary.
package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
)

var binDir string // of the built isolane, and of the programs that test it

func TestMain(m *testing.M) { hosttest.Main(built{m}, intruder) }

// built is the tests, run against binaries of the present sources. They must leave the host as it was.
type built struct{ tests *testing.M }

func (b built) Run() int {
	dir, err := os.MkdirTemp("", "isolane-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err = os.Chmod(dir, 0o755); err != nil { // a script runs it as another user
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binDir = dir
	for program, source := range map[string]string{"isolane": "../cmd/isolane", "programs": "./programs"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, program), source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, berr := build.CombinedOutput(); berr != nil {
			fmt.Fprintf(os.Stderr, "%s%v\n", out, berr)
			return 1
		}
	}
	if err = os.Setenv("ISOLANE_HISTORY", filepath.Join(dir, "history")); err != nil { // instead of this host's
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if left, _ := filepath.Glob("/run/isolane/*.journal"); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%s: a crashed session has left changes on this host: run isolane recover\n", left[0])
		return 1
	}
	before, err := hosttest.ReadState()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := b.tests.Run()
	after, err := hosttest.ReadState()
	if changes := after.Changes(before); err != nil || len(changes) > 0 {
		fmt.Fprintf(os.Stderr, "the tests left the host changed: %v\n%s\n", err, strings.Join(changes, "\n"))
		return 1
	}
	return code
}

func setup(env *testscript.Env) error {
	env.Values["tb"] = env.T()
	env.Setenv("PATH", binDir+":"+env.Getenv("PATH"))
	env.Setenv("ISOLANE", filepath.Join(binDir, "isolane"))
	env.Setenv("ISOLANE_HISTORY", filepath.Join(env.WorkDir, "history.store"))
	repository, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	env.Setenv("REPOSITORY", repository)
	env.Defer(func() { // releases what a failed script has left in force
		if _, err := os.Stat("/run/isolane/lanes.json"); err == nil {
			_ = exec.Command(filepath.Join(binDir, "isolane"), "release", "--all").Run() // TestMain shows the rest
		}
	})
	return nil
}

// needs skips a script on a machine that lacks something: needs even program:jq
func needs(ts *testscript.TestScript, neg bool, args []string) {
	tb, ok := ts.Value("tb").(testing.TB)
	if neg || !ok || len(args) == 0 {
		ts.Fatalf("usage: needs FEATURE...")
	}
	for _, name := range args {
		program, is := strings.CutPrefix(name, "program:")
		switch {
		case is:
			dirs := filepath.SplitList(ts.Getenv("PATH")) // the script may have changed it
			if !slices.ContainsFunc(dirs, func(dir string) bool {
				_, err := exec.LookPath(filepath.Join(dir, program))
				return err == nil
			}) {
				tb.Skip("skipped: needs " + program)
			}
		case name == "cgroup1":
			hosttest.Need(tb, hosttest.CgroupV1Cpuset)
		case name == "even":
			hosttest.Need(tb, hosttest.Even)
		case name == "bpf":
			hosttest.Need(tb, hosttest.BPF)
		case name == "kernel": // for virtual machines, as in make test
			kernel := os.Getenv("ISOLANE_GUEST_KERNEL")
			if kernel == "" {
				tb.Skip("skipped: needs a kernel for virtual machines: make test")
			}
			ts.Setenv("KERNEL", kernel)
		default:
			ts.Fatalf("needs %s: expected cgroup1, even, bpf, kernel or program:NAME", name)
		}
	}
}

// split sets variables for a lane that takes all CPUs of this machine but one: COUNT, CPUS and CPUS_MASK of
// all, LANE, LANE_MASK and LAST of the lane, HOUSE and HOUSE_MASK of the rest, and CPUSET, the mount point of
// the hierarchy with the cpusets. It replaces them in the named files.
func split(ts *testscript.TestScript, neg bool, files []string) {
	h, err := host.Read(host.Live())
	ts.Check(err)
	usable := h.Usable()
	house := cpuset.Of(usable.First())
	lane := usable.Difference(house)
	mount := h.Kernel.Cgroup.CpusetV1
	if neg || mount == nil || lane.IsEmpty() {
		ts.Fatalf("usage: split FILE..., after needs even cgroup1")
	}
	values := map[string]string{"COUNT": strconv.Itoa(lane.Len()), "CPUS": usable.String(), "CPUS_MASK": usable.Mask(),
		"LANE": lane.String(), "LANE_MASK": lane.Mask(), "LAST": strconv.Itoa(lane.Last()),
		"HOUSE": house.String(), "HOUSE_MASK": house.Mask(), "CPUSET": *mount}
	for name, value := range values {
		ts.Setenv(name, value)
	}
	for _, file := range files {
		text := os.Expand(ts.ReadFile(file), func(name string) string { return values[name] })
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o644))
	}
}

// exits runs a command and checks its exit code: exits 2 isolane …
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if err != nil {
		code = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if code != args[0] {
		ts.Fatalf("exit code %s, want %s", code, args[0])
	}
}

func scripts(t *testing.T, p testscript.Params) {
	t.Helper()
	p.Setup, p.RequireExplicitExec = setup, true
	p.Cmds = map[string]func(*testscript.TestScript, bool, []string){
		"exits": exits, "conforms": conforms, "needs": needs, "split": split}
	testscript.Run(t, p)
}

func TestAnywhere(t *testing.T) { scripts(t, testscript.Params{Dir: "testdata/anywhere"}) }

// One session at a time, because the journal of prove belongs to one process.
func TestOnThisHost(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2), hosttest.Program("stress-ng"), hosttest.Program("iperf3"))
	files, err := filepath.Glob("testdata/host/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, f := range files { // each ends before the next begins
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) { scripts(t, testscript.Params{Files: []string{f}}) })
	}
}
