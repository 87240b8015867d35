package test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"isolane.dev/isolane/host/hosttest"
)

// A program in another module makes a lane with the library, runs processes in it that stay on its CPUs, and
// releases it.
func TestEmbed(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	program := filepath.Join(t.TempDir(), "embed")
	if out, err := exec.Command("go", "build", "-C", "../examples/embed", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const busy = `for i in 1 2 3; do (i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; cat /proc/self/stat | cut -d' ' -f39) & done
		wait; echo lane $ISOLANE_CPUS of $ISOLANE_LANE`
	// Confined to one CPU, it can use for a lane only CPUs that the lane names. Its workload is not confined in
	// this way.
	for name, argv := range map[string][]string{"free": {program}, "confined": {"taskset", "-c", "0", program, "-cpus", "0-1"}} {
		argv = append(argv, "sh", "-c", busy)
		cmd := exec.Command(argv[0], argv[1:]...)
		out, err := cmd.Output()
		ran := regexp.MustCompile(`^([0-9]+)\n([0-9]+)\n([0-9]+)\nlane ([0-9]+) of embedded\n$`).FindStringSubmatch(string(out))
		if err != nil || ran == nil || ran[1] != ran[4] || ran[2] != ran[4] || ran[3] != ran[4] {
			t.Errorf("%s: expected three processes on the lane's CPU, found %s, %v", name, out, err)
		}
	}
	if out, err := exec.Command("taskset", "-c", "0", program, "true").CombinedOutput(); err == nil {
		t.Errorf("confined, without CPUs: %s", out)
	}
	if out, err := exec.Command(filepath.Join(binDir, "isolane"), "status").CombinedOutput(); err != nil || string(out) != "no lanes are in force\n" {
		t.Errorf("afterwards: %v: %s", err, out)
	}
}
