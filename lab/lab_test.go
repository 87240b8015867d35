package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestArgs(t *testing.T) {
	m := Machine{Sockets: 1, Cores: 2, Threads: 2, Kernel: "rt", Cmdline: "isolcpus=1", Nodes: []Node{
		{MemoryMiB: 512, Distances: []int{10, 30}}, {MemoryMiB: 256, Distances: []int{30, 10}, NICs: 2, NVMes: 1}}}
	if err := m.validate(); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(m.args(files{kernel: "K", share: "S,"}), " ")
	for _, want := range []string{"-smp 4,sockets=1,cores=2,threads=2 -m 768M", "-numa node,nodeid=0,cpus=0-1,memdev=m0", "-numa node,nodeid=1,cpus=2-3,memdev=m1",
		"-numa dist,src=1,dst=0,val=30", "igb,id=nic11,bus=rp11,netdev=n11,mac=52:54:00:00:01:01", "nvme,serial=lab10,drive=nv10,bus=rp12",
		"pxb-pcie,id=pxb1,bus=pcie.0,bus_nr=64,numa_node=1", "path=S,,,security_model=none", "-kernel K", "tsc=reliable isolcpus=1"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

func TestReadMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.yaml")
	for text, want := range map[string]string{
		"kernel: rt":                       "",
		"kernl: rt":                        "unknown field",
		"kernel: bsd":                      "kernel: \"bsd\": expected generic or rt",
		"sockets: 0":                       "expected at least 1 each",
		"threads: 3\ncores: 1":             "",
		"sockets: 3\ncores: 1":             "",
		"sockets: 1\ncores: 1\nthreads: 1": "nodes: expected 1 to 8 that divide the 1 CPUs evenly",
		"nodes: [{memoryMiB: 1024, distances: [20]}]": "nodes[0].distances: expected 1 numbers, 10 for the node itself",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadMachine(file)
		if (want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), file)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A stand-in for QEMU: a shell script in the place of the loader.
func standIn(t *testing.T, script string) (Lab, Options, *bytes.Buffer) {
	t.Helper()
	l, dir := Lab{t.TempDir()}, t.TempDir()
	loader := filepath.Join(l.dir, "qemu/usr/lib64/ld-linux-x86-64.so.2")
	if err := os.MkdirAll(filepath.Dir(loader), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(loader, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	return l, Options{Dir: dir, Runner: dir, Share: dir, Log: &log}, &log
}

// What QEMU says is in the error, in one line, and nothing of it is left.
func TestQEMUFails(t *testing.T) {
	l, o, _ := standIn(t, "echo 'no such machine' >&2; exit 3")
	_, err := l.Start(t.Context(), Default(), o)
	if err == nil || !strings.Contains(err.Error(), "QEMU ended: exit status 3") || !strings.Contains(err.Error(), "no such machine") {
		t.Errorf("got %v", err)
	}
	if _, ok := running(o.Dir); ok {
		t.Error("it still runs")
	}
}

// A crash of the emulation is tried again, and each time is told.
func TestCrash(t *testing.T) {
	l, o, log := standIn(t, "kill -ABRT $$")
	_, err := l.Start(t.Context(), Default(), o)
	if !errors.Is(err, errCrashed) || strings.Count(log.String(), "started again") != restarts {
		t.Errorf("%v; %s", err, log)
	}
}

// A guest that never answers is ended with its runner's patience.
func TestCancelled(t *testing.T) {
	l, o, _ := standIn(t, "exec sleep 1000")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := l.Start(ctx, Default(), o)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if _, ok := running(o.Dir); ok {
		t.Error("it still runs")
	}
}

func TestUnwrap(t *testing.T) {
	if _, err := unwrap([]byte("MZ\x28\xb5\x2f\xfd not a stream")); err == nil || !strings.Contains(err.Error(), "found no kernel") {
		t.Errorf("got %v", err)
	}
}

// The scripts in testdata run in machines; those with the same machine, kernel and command line share
// one. The first lines of a script say which: "# kernel: rt", "# cmdline: …".
func TestLab(t *testing.T) {
	if os.Getenv("ISOLANE_LAB") == "" {
		t.Skip("skipped: runs in virtual machines, several minutes: make test-lab")
	}
	bin, err := filepath.Abs("../bin")
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string][]string{}
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatal(err, scripts)
	}
	for _, s := range scripts {
		data, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		key := header(string(data), "kernel", "generic") + "\n" + header(string(data), "cmdline", "")
		groups[key] = append(groups[key], s)
	}
	for key, files := range groups {
		kernel, cmdline, _ := strings.Cut(key, "\n")
		t.Run(strings.TrimSpace(kernel+" "+cmdline), func(t *testing.T) {
			share, name := t.TempDir(), fmt.Sprintf("test-%d-%s", os.Getpid(), kernel)
			run := func(args ...string) string {
				out, err := exec.Command(filepath.Join(bin, "isolane-lab"), args...).CombinedOutput() //nolint:noctx // each has a limit of its own
				if err != nil {
					t.Fatalf("isolane-lab %s: %v\n%s", strings.Join(args, " "), err, out)
				}
				return string(out)
			}
			for _, program := range []string{"isolane"} {
				data, err := os.ReadFile(filepath.Join(bin, program))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(share, program), data, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if said := run("up", name, "--kernel", kernel, "--cmdline", cmdline, "--share", share); said != "" {
				t.Log(said) // a guest that had to be started again
			}
			t.Cleanup(func() { run("down", name) })
			testscript.Run(t, testscript.Params{Files: files, Setup: func(e *testscript.Env) error {
				e.Setenv("PATH", bin+":"+os.Getenv("PATH"))
				e.Setenv("LAB", name)
				e.Setenv("SHARE", share)
				e.Setenv("TMPDIR", os.TempDir()) // where isolane-lab finds the machine
				cache, err := Cache()
				e.Setenv("ISOLANE_LAB_CACHE", cache)
				return err
			}})
		})
	}
}

func header(script, name, without string) string {
	for line := range strings.Lines(script) {
		if value, ok := strings.CutPrefix(line, "# "+name+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return without
}
