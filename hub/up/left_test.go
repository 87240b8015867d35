package up

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What a killed hub has left is ended, and nothing else: not a process that now has its id.
func TestEndLeft(t *testing.T) {
	dir := t.TempDir()
	start := func() *exec.Cmd {
		t.Helper()
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
		})
		return cmd
	}
	left, other := start(), start()
	for program, pid := range map[string]int{"etcd": left.Process.Pid, "kube-apiserver": other.Process.Pid} {
		if err := record(dir, program, pid); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, recorded("kube-apiserver"))
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(was)) // its id, its start time, the boot
	earlier := []byte(words[0] + " 1" + words[1] + " " + words[2])
	if err = os.WriteFile(file, earlier, 0o600); err != nil {
		t.Fatal(err)
	}
	if err = endLeft(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	is, err := identity(other.Process.Pid)
	if err != nil || is != string(was) {
		t.Errorf("another process is %q, %v: expected it as it was, %q", is, err, was)
	}
	if err = left.Wait(); err == nil || left.ProcessState.String() != "signal: killed" {
		t.Errorf("what was left: %v", left.ProcessState)
	}
	if records, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(records) > 0 {
		t.Errorf("records %v are left, %v", records, err)
	}
}
