package node

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"testing"
	"time"

	"isolane.dev/isolane/host/cgroup"
)

// All processes in a container's cgroup end, wherever the kubelet's cgroups are, and no others.
func TestEnd(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root")
	}
	mounts, err := cgroup.Mounted(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	top, v2 := mounts.Cpuset()
	name := "isolane-end-" + strconv.Itoa(os.Getpid())
	inside := func(group string) *exec.Cmd {
		dir := makeGroup(t, filepath.Join(top, name), group, v2)
		cmd := exec.Command("sh", "-c", "echo $$ > $0/cgroup.procs; sleep 1000 & echo; wait", dir)
		out, perr := cmd.StdoutPipe()
		if perr == nil {
			perr = cmd.Start()
		}
		if perr != nil {
			t.Fatal(perr)
		}
		t.Cleanup(func() {
			if eerr := killCgroup(context.WithoutCancel(t.Context()), name+"/"+group); eerr != nil {
				t.Error(eerr)
			}
			_ = cmd.Wait()
		})
		if _, perr = out.Read(make([]byte, 1)); perr != nil {
			t.Fatal(perr)
		}
		return cmd
	}
	makeGroup(t, top, name, v2)
	one, beside := inside("one"), inside("another-one")
	if err = killCgroup(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if found, _ := cgroup.Processes(os.DirFS("/"), filepath.Join(top, name, "one")); len(found) > 0 {
		t.Errorf("processes %v go on", found)
	}
	if one.Wait() == nil {
		t.Error("the program ended by itself")
	}
	if found, _ := cgroup.Processes(os.DirFS("/"), filepath.Join(top, name, "another-one")); len(found) != 2 {
		t.Errorf("beside it are processes %v of %d, expected two", found, beside.Process.Pid)
	}
}

// makeGroup makes a cgroup inside another one, with the same CPUs and memory nodes.
func makeGroup(t *testing.T, in, name string, v2 bool) string {
	t.Helper()
	dir := filepath.Join(in, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := os.Remove(dir)
		for by := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(by); err = os.Remove(dir) {
			goruntime.Gosched() // ended processes leave the cgroup a moment later
		}
		if err != nil {
			t.Error(err)
		}
	})
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if v2 {
			break
		}
		text, err := os.ReadFile(filepath.Join(in, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
