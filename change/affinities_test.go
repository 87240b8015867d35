package change

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
)

// What the kernel opens is closed again for a process that was recorded and for its younger child, and for
// nobody else: not for an older child that has all CPUs.
func TestSettle(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	all, err := task.Affinity(0)
	if err != nil {
		t.Fatal(err)
	}
	first := cpuset.Of(all.First())
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo $!; read line; sleep 0.1; sleep 1000 & echo $!; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	in, ierr := cmd.StdinPipe()
	out, oerr := cmd.StdoutPipe()
	if ierr != nil || oerr != nil {
		t.Fatal(ierr, oerr)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if kerr := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); kerr != nil {
			t.Error(kerr)
		}
		_ = cmd.Wait() // killed
	})
	lines := bufio.NewReader(out)
	child := func() (pid int) {
		if _, err = fmt.Fscanln(lines, &pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	born := func(pid int) uint64 {
		start, serr := task.StartTime(host.Live(), pid)
		if serr != nil {
			t.Fatal(serr)
		}
		return start
	}
	parent, elder := cmd.Process.Pid, child()
	if _, err = io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	younger := child()
	if born(younger) == born(elder) { // in ticks of the clock
		t.Fatal("the children are of one age")
	}
	own := func() map[string]cpuset.Set {
		found := map[string]cpuset.Set{}
		for name, pid := range map[string]int{"parent": parent, "elder": elder, "younger": younger} {
			if found[name], err = task.Affinity(pid); err != nil {
				t.Fatal(err)
			}
		}
		return found
	}
	op := affinities{kernel{"/"}}
	s := journal.Step{Kind: KindAffinities, Target: AffinitiesTarget, After: all.Difference(first).String(),
		Before: fmt.Sprintf("%s%d%s", recordedPrefix, born(elder), pins{TaskTarget(parent, born(parent)): {cpus: first}})}
	if err = op.Check(s); err != nil {
		t.Fatal(err)
	}
	for i, settle := range []func() error{
		func() error { return op.Finish(context.Background(), s) },
		func() error { return op.Write(context.Background(), s, s.Before) },
	} {
		for _, pid := range []int{parent, elder, younger} {
			if err = task.SetAffinity(pid, all); err != nil {
				t.Fatal(err)
			}
		}
		if err = settle(); err != nil {
			t.Fatal(err)
		}
		if got := own(); got["parent"] != first || got["younger"] != first || got["elder"] != all {
			t.Errorf("%d: %v", i, got)
		}
	}
}
