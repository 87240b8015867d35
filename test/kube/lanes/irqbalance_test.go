package lanes_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"isolane.dev/isolane/test/kube/bed"
	"isolane.dev/isolane/test/kube/bed/bedtest"
)

// irqbalance is a service of the machine. The node part, in its container, tells it which CPUs a pod's lane has, again
// after somebody has removed that, and of none when the lane has gone.
func TestIrqbalance(t *testing.T) {
	// It is started, and its configuration is written.
	if _, err := os.Stat("/usr/sbin/irqbalance"); err != nil || !bedtest.Systemd() || os.Getenv("ISOLANE_KUBE_JOIN") == "" {
		t.Skip("skipped: needs a machine of the lab with systemd and irqbalance: ", err)
	}
	needCPUs(t, 3)
	c := start(t, bed.Options{})
	manifest, err := os.ReadFile(root + "/deploy/kube/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c.daemonSet(t, string(manifest), "-f", "-")
	lists := map[string][]byte{}
	files, _ := filepath.Glob("/proc/irq/*/smp_affinity_list")
	for _, file := range files {
		lists[file], _ = os.ReadFile(file)
	}
	t.Cleanup(func() {
		for file, list := range lists {
			_ = os.WriteFile(file, list, 0) // the kernel moves some itself, and refuses
		}
	})
	t.Cleanup(func() { systemctl(t, "stop", "irqbalance") })
	const arguments = "/etc/default/irqbalance" // of Debian's unit
	if err = os.WriteFile(arguments, []byte("IRQBALANCE_ARGS='-t 1'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	systemctl(t, "start", "irqbalance")
	banned := func(want string) {
		t.Helper()
		c.until(t, "irqbalance leaves CPUs "+want+" alone", func() error {
			environment, rerr := os.ReadFile("/proc/" + systemctl(t, "show", "-P", "MainPID", "irqbalance") + "/environ")
			found := ""
			for variable := range strings.SplitSeq(string(environment), "\x00") {
				if cpus, is := strings.CutPrefix(variable, "IRQBALANCE_BANNED_CPULIST="); is {
					found = cpus
				}
			}
			if rerr == nil && found != want {
				rerr = fmt.Errorf("CPUs %q", found)
			}
			return rerr
		})
	}
	banned("")
	c.spin(t, "noisy", "", "4")
	c.lane(t, "edge", "", "2")
	c.ready(t, "edge")
	cpus := c.cpusOf(t, "edge")
	banned(cpus)
	systemctl(t, "restart", "irqbalance")
	banned(cpus)
	quiet := func() (err error) {
		before := fired(t, cpus)
		c.apart(t, cpus, "edge", "noisy") // some turns of irqbalance's
		for irq, times := range fired(t, cpus) {
			if times != before[irq] {
				err = errors.Join(err, fmt.Errorf("interrupt %s fired %d times on CPU %s", irq, times-before[irq], cpus))
			}
		}
		return err
	}
	if err = quiet(); err != nil {
		t.Error(err)
	}

	if err = os.Remove("/run/systemd/system/irqbalance.service.d/50-isolane.conf"); err != nil {
		t.Fatal(err)
	}
	systemctl(t, "daemon-reload")
	systemctl(t, "restart", "irqbalance")
	c.says(t, "edge", "LaneChanged", "CPUs and interrupts that irqbalance leaves alone: expected "+cpus+", found ")
	banned(cpus)
	c.until(t, "what was moved meanwhile is put back", quiet)
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)
	banned("")
	if left, _ := filepath.Glob("/run/systemd/system/irqbalance*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// fired returns how often interrupts of devices have come to a CPU, by their numbers.
func fired(t *testing.T, cpu string) map[string]int {
	t.Helper()
	text, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		t.Fatal(err)
	}
	header, rows, _ := strings.Cut(string(text), "\n")
	column := 1 + slices.Index(strings.Fields(header), "CPU"+cpu)
	times := map[string]int{}
	for row := range strings.Lines(rows) {
		f := strings.Fields(row)
		irq := strings.TrimSuffix(f[0], ":")
		if _, aerr := strconv.Atoi(irq); aerr != nil || len(f) <= column {
			continue // the kernel's own: timers, calls between CPUs
		}
		if times[irq], err = strconv.Atoi(f[column]); err != nil {
			t.Fatal(err)
		}
	}
	if column == 0 || len(times) == 0 {
		t.Fatalf("/proc/interrupts: expected CPU %s and interrupts of devices", cpu)
	}
	return times
}

func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
