package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts in testdata run in machines. Their first line says in which one: "# machine: {kernel: rt}", in
// YAML as in descriptions. Scripts for the same machine share one, one after the other.
func TestLab(t *testing.T) {
	groups, order := map[string][]string{}, []string{}
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatal(err, scripts)
	}
	for _, s := range scripts {
		data, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(data), "\n")
		machine, ok := strings.CutPrefix(line, "# machine: ")
		if !ok {
			t.Fatalf("%s:1: expected # machine: and a description", s)
		}
		if groups[machine] == nil {
			order = append(order, machine)
		}
		groups[machine] = append(groups[machine], s)
	}
	for _, machine := range order {
		var names []string
		for _, s := range groups[machine] {
			names = append(names, name(s))
		}
		t.Run(strings.Join(names, ","), func(t *testing.T) { together(t, machine, groups[machine]) })
	}
}

func name(script string) string { return strings.TrimSuffix(filepath.Base(script), ".txtar") }

// together boots a machine and runs scripts in it. Each passes, fails, or says why it was not run.
func together(t *testing.T, machine string, scripts []string) {
	t.Helper()
	ctx := t.Context()
	if end, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-30*time.Second)) // leaves time to say what was not run
		defer cancel()
	}
	var vm *VM
	var err error
	share := t.TempDir()
	bin, berr := filepath.Abs("../bin")
	scenarios, serr := filepath.Abs("../scenarios")
	cache, cerr := Cache()
	start := sync.OnceFunc(func() { err = furnish(ctx, bin, share) }) // before the first script that -run and -skip leave
	booted := sync.OnceFunc(func() {                                  // before the first that uses this machine
		began := time.Now()
		if vm, err = boot(ctx, t, machine, bin, cache, share); err == nil {
			t.Logf("booted in %v; emulated in software, timings mean nothing", time.Since(began).Round(time.Second))
		}
	})
	defer func() {
		if vm != nil {
			vm.Stop()
		}
	}()
	for _, s := range scripts {
		t.Run(name(s), func(t *testing.T) {
			if os.Getenv("ISOLANE_LAB") == "" {
				t.Skip("skipped: runs in virtual machines, several minutes: make test-lab")
			}
			start()
			switch {
			case errors.Join(err, berr, serr, cerr) != nil:
				t.Fatal("not run: ", errors.Join(err, berr, serr, cerr))
			case ctx.Err() != nil:
				t.Fatal("not run: those before it took all the time there was")
			}
			first := true
			once := func(argv []string, out, errs *bytes.Buffer) (int, error) {
				limit, cancel := context.WithTimeout(ctx, 12*time.Minute)
				defer cancel()
				return vm.Exec(limit, argv, out, errs)
			}
			guest := func(ts *testscript.TestScript, argv []string) int {
				var out, errs bytes.Buffer
				var code int
				booted()
				ts.Check(err)
				code, err = once(argv, &out, &errs) // after an error no other script can follow
				if why := broken(vm); first && why != "" && (err != nil || code != 0) {
					t.Logf("%s ended with %d (%v), and the guest's kernel said %q: once more in a new machine", argv, code, err, why)
					vm.Stop()
					out.Reset()
					errs.Reset()
					if vm, err = boot(ctx, t, machine, bin, cache, share); err == nil {
						code, err = once(argv, &out, &errs)
					}
				}
				first = false // later scripts need what earlier ones have left
				_, _ = out.WriteTo(ts.Stdout())
				_, _ = errs.WriteTo(ts.Stderr())
				ts.Check(err)
				return code
			}
			testscript.Run(t, testscript.Params{Files: []string{s}, RequireExplicitExec: true, Cmds: commands(guest),
				Setup: func(e *testscript.Env) error {
					e.Setenv("PATH", bin+":"+os.Getenv("PATH"))
					e.Setenv("SHARE", share)
					e.Setenv("SCENARIOS", scenarios)
					e.Setenv("ISOLANE_LAB_CACHE", cache) // for scripts that boot another machine
					return nil
				}})
		})
	}
}

// broken returns what the guest's kernel said when an emulated CPU hung or went astray: programs may wait for
// ever for what that CPU did. It returns "" if the kernel said no such thing.
func broken(vm *VM) string {
	data, _ := os.ReadFile(filepath.Join(vm.dir, "console")) // none: it said nothing
	for line := range strings.Lines(string(data)) {
		if wrong(line) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func boot(ctx context.Context, t *testing.T, machine, bin, cache, share string) (*VM, error) {
	t.Helper()
	l, err := Open(cache)
	if err != nil {
		return nil, err
	}
	m, err := ParseMachine(machine, []byte(machine))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "isolane-lab-") // t.TempDir's name is too long for a socket's path
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return l.Start(ctx, m, Options{Runner: bin, Share: share, Dir: dir, Log: t.Output()})
}

// furnish makes what scripts find in /host in machines.
func furnish(ctx context.Context, bin, share string) error {
	data, err := os.ReadFile(filepath.Join(bin, "isolane"))
	if err == nil {
		err = os.WriteFile(filepath.Join(share, "isolane"), data, 0o755)
	}
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"build", "-trimpath", "-o", share + "/programs", "./test/programs"},
		{"test", "-c", "-o", share + "/netpath.test", "./netpath"}, // which scripts run on the machine's kernel and cards
		{"-C", "hub", "test", "-c", "-o", share + "/workload.test", "./workload"},
	} {
		build := exec.CommandContext(ctx, "go", args...)
		build.Dir = ".."
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, berr := build.CombinedOutput(); berr != nil {
			return fmt.Errorf("%w: %s", berr, out)
		}
	}
	return nil
}

// commands of the scripts: guest COMMAND… succeeds in the machine; guest-exits CODE COMMAND… ends with
// that code.
func commands(guest func(*testscript.TestScript, []string) int) map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"guest": func(ts *testscript.TestScript, neg bool, args []string) {
			if len(args) == 0 {
				ts.Fatalf("usage: guest COMMAND [ARG...]")
			}
			if code := guest(ts, args); (code == 0) == neg {
				ts.Fatalf("exit code %d", code)
			}
		},
		"guest-exits": func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < 2 {
				ts.Fatalf("usage: guest-exits CODE COMMAND [ARG...]")
			}
			if code := guest(ts, args[1:]); args[0] != strconv.Itoa(code) {
				ts.Fatalf("exit code %d, want %s", code, args[0])
			}
		},
	}
}
