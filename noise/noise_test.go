package noise

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/host/hosttest"
)

func TestDelivered(t *testing.T) {
	// Written by stress-ng 0.15.06, shortened, with the beginning of 0.19.02's.
	got, err := Delivered([]byte(`---
build-info:
      compiler: 'gcc 14.2.0'
source-date-epoch: 1751354863
      stdc-version: '199901L'

system-info:
      stress-ng-version: 0.15.06
      date-yyyy-mm-dd: 2026:11:20
metrics:
    - stressor: cpu
      bogo-ops: 3960
      bogo-ops-per-second-usr-sys-time: 3037.895444
      bogo-ops-per-second-real-time: 1984.594661
    - stressor: malloc
      bogo-ops: 249599
      bogo-ops-per-second-real-time: 123535.597705

...
`))
	want := map[string]float64{"cpu": 1984.594661, "malloc": 123535.597705}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	got, err = Delivered([]byte("---\nmetrics:\n    - stressor: cpu\n      bogo-ops-per-second-real-time: 3\n\n...\n" +
		"Time: 0.250\nTime: 0.750\n"))
	if d := cmp.Diff(map[string]float64{"cpu": 3, Hackbench: 2}, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for _, bad := range []string{"", "metrics: 3", "metrics: []", "\x00", "Time: soon\n"} {
		if got, err := Delivered([]byte(bad)); err == nil {
			t.Errorf("Delivered(%q) = %v; want an error", bad, got)
		}
	}
}

func TestArgv(t *testing.T) {
	got := Argv([]Stressor{{Name: "cpu", Options: map[string]string{"method": "sqrt"}}, {Name: "malloc"}}, 2, "/r.yaml", "/t")
	want := []string{"stress-ng", "--quiet", "--timeout", "0", "--metrics", "--yaml", "/r.yaml", "--temp-path", "/t",
		"--cpu", "2", "--cpu-method", "sqrt", "--malloc", "2"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, s := range []Stressor{{Name: "--exec"}, {Name: Hackbench, Options: map[string]string{"loops": "3 --fifo"}}} {
		if s.Validate() == nil {
			t.Errorf("%+v: passed", s)
		}
	}
}

// hackbench works beside stress-ng until it is told to end, and then nothing of it is left; if one of them ends
// by itself, so does the other.
func TestHackbench(t *testing.T) {
	hosttest.Need(t, hosttest.Program(Hackbench), hosttest.Program(Program))
	quick := Stressor{Name: Hackbench, Options: map[string]string{"loops": "5"}}
	for name, c := range map[string]struct {
		stressors []Stressor
		works     bool
	}{
		"both":          {[]Stressor{quick, {Name: "cpu"}}, true},
		"alone":         {[]Stressor{quick}, true},
		"bad option":    {[]Stressor{{Name: Hackbench, Options: map[string]string{"unknown": "1"}}, {Name: "cpu"}}, false},
		"bad stress-ng": {[]Stressor{quick, {Name: "cpu", Options: map[string]string{"unknown": "1"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			report := dir + "/noise.yaml"
			argv := Argv(c.stressors, 1, report, dir)
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }()
			if c.works {
				for { // until both have worked; the test's time is the limit
					if times, err := os.ReadFile(report + ".times"); err == nil && bytes.Count(times, []byte("\n")) > 20 {
						break
					}
					<-time.After(10 * time.Millisecond)
				}
				if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Wait(); (err == nil) != c.works {
				t.Errorf("ended with %v", err)
			}
			if err := syscall.Kill(-cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("processes are left: %v", err)
			}
			if !c.works {
				return
			}
			text, err := os.ReadFile(report)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Delivered(text)
			if err != nil || len(got) != len(c.stressors) || got[Hackbench] <= 0 {
				t.Errorf("%v %v of\n%s", got, err, text)
			}
		})
	}
}
