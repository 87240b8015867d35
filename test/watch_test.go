package test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/witness"
)

// While isolane watches a CPU, a second trace of that CPU finds no thread of isolane, and neither does its
// own.
func TestWatchStaysOff(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), hosttest.BPF)
	h, err := host.Read(host.Live())
	if err != nil {
		t.Fatal(err)
	}
	cpu := cpuset.Of(h.Usable().Last())
	cmd := exec.Command(filepath.Join(binDir, "isolane"), "watch", "--cpus", cpu.String(), "-o", "json")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	first := readings(t, lines, 1)
	if first.Evidence != "bpf" {
		t.Skipf("skipped: needs eBPF at the kernel's tracepoints: %q", first.Warnings)
	}
	trace, err := witness.NewTrace(os.DirFS("/"), cpu, witness.Owned{})
	if err != nil {
		t.Fatal(err)
	}
	last := readings(t, lines, 3)
	here, err := trace.Read()
	if err != nil {
		t.Fatal(err)
	}
	if err = trace.Close(); err != nil {
		t.Error(err)
	}
	for _, s := range append(here.Since, last.SinceStart.Sources...) {
		if s.PID == cmd.Process.Pid {
			t.Errorf("isolane ran on CPU %s: %+v", cpu, s)
		}
	}
	if len(here.Since) == 0 || len(last.Sources) == 0 {
		t.Errorf("%d sources here, %d there: expected at least a tick", len(here.Since), len(last.Sources))
	}
	if last.Kind != "Intruders" || last.Host == "" || !last.At.After(first.At) || last.At.Location() != time.UTC ||
		last.Window <= 0 || last.SinceStart.Window < last.Window+first.Window || !last.SinceStart.At.Equal(first.SinceStart.At) {
		t.Errorf("the first document %+v, the fourth %+v", first, last)
	}
	if err = cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	final := readings(t, lines, 1)
	for n := 0; n < 60 && !final.Final; n++ { // seconds may have passed first
		final = readings(t, lines, 1)
	}
	if !final.Final {
		t.Fatal("no final document after Ctrl-C")
	}
	if err = cmd.Wait(); err != nil {
		t.Error(err)
	}
}

type watchDocument struct {
	APIVersion, Kind, Host, Evidence string
	At                               time.Time
	Final                            bool
	Window                           time.Duration `json:"windowNanoseconds"`
	Sources                          []witness.Source
	SinceStart                       struct {
		At      time.Time
		Window  time.Duration `json:"windowNanoseconds"`
		Sources []witness.Source
	}
	Warnings []string
}

// readings reads n documents and returns the last.
func readings(t *testing.T, lines *bufio.Scanner, n int) (last watchDocument) {
	t.Helper()
	for range n {
		if !lines.Scan() {
			t.Fatalf("expected a document: %v", lines.Err())
		}
		last = watchDocument{}
		if err := json.Unmarshal(lines.Bytes(), &last); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
	}
	return last
}
