// Package test runs scripts against the built binary.
package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"isolane.dev/isolane/host/hosttest"
)

var binDir string // of the built isolane, and of the programs that try it

func TestMain(m *testing.M) {
	if cpu := os.Getenv(intruderCPU); cpu != "" {
		fmt.Fprintln(os.Stderr, intrude(cpu))
		os.Exit(1) //nolint:forbidigo // TestMain is this package's main
	}
	os.Exit(run(m)) //nolint:forbidigo // TestMain is this package's main
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "isolane-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)                     //nolint:errcheck // a temporary directory
	if err = os.Chmod(dir, 0o755); err != nil { // a script runs it as another user
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binDir = dir
	for program, source := range map[string]string{"isolane": "../cmd/isolane", "programs": "./programs"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, program), source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
			return 1
		}
	}
	if left, _ := filepath.Glob("/run/isolane/*.journal"); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%s: a crashed session has left changes on this host: run isolane recover\n", left[0])
		return 1
	}
	before := fingerprint()
	code := m.Run()
	if after := fingerprint(); after != before {
		fmt.Fprintf(os.Stderr, "the tests left the host changed:\nbefore:\n%s\nafter:\n%s\n", before, after)
		return 1
	}
	return code
}

// fingerprint is what a test must leave as it was.
func fingerprint() string {
	out, err := exec.Command("sh", "-c", `ls /run/netns /run/isolane 2>/dev/null
ip -o link | cut -d: -f2 | sort
find /sys/fs/cgroup -type d -name 'isolane*' 2>/dev/null
cat /proc/irq/*/smp_affinity_list /proc/irq/default_smp_affinity 2>/dev/null
cat /sys/devices/virtual/workqueue/cpumask /proc/sys/vm/nr_hugepages /proc/sys/net/core/busy_poll /proc/sys/net/core/busy_read
cat /sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us 2>/dev/null
ps -eo comm= | grep -E '^(stress-ng|iperf3)' || true`).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func setup(env *testscript.Env) error {
	env.Setenv("PATH", binDir+":"+env.Getenv("PATH"))
	env.Setenv("ISOLANE", filepath.Join(binDir, "isolane"))
	repository, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	env.Setenv("REPOSITORY", repository)
	env.Defer(func() { // what a script that failed left in force
		if _, err := os.Stat("/run/isolane/lanes.json"); err == nil {
			_ = exec.Command(filepath.Join(binDir, "isolane"), "release", "--all").Run() // the fingerprint shows the rest
		}
	})
	return nil
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
	p.Cmds = map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "conforms": conforms}
	testscript.Run(t, p)
}

func TestAnywhere(t *testing.T) { scripts(t, testscript.Params{Dir: "testdata/anywhere"}) }

// One session at a time: the journal of prove belongs to one process.
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
