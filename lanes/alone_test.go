package lanes

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
)

// A lane that is a plain cpuset in the cgroup of a container, on cgroup v2, whatever its kernel: all beside it are kept off its
// CPU, also those that come later; after release all have all CPUs, and their cgroups are as before, but that some with
// processes name all CPUs.
func TestAloneOnThisHost(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	h, err := host.Read(host.Live())
	if err != nil {
		t.Fatal(err)
	}
	top, v2 := h.Kernel.Cgroup.Cpuset()
	if !v2 {
		t.Skip("skipped: needs cgroup v2")
	}
	all := h.Usable().String()
	processes := map[string]int{}
	begin := func(group string) {
		t.Helper()
		dir := filepath.Join(top, group)
		if merr := os.MkdirAll(dir, 0o755); merr != nil {
			t.Fatal(merr)
		}
		f, oerr := os.Open(dir)
		if oerr != nil {
			t.Fatal(oerr)
		}
		defer f.Close()
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, UseCgroupFD: true, CgroupFD: int(f.Fd())}
		if serr := cmd.Start(); serr != nil {
			t.Fatal(serr)
		}
		processes[group] = cmd.Process.Pid
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // and its cgroups, from the lowest
			_ = cmd.Wait()
			for at := dir; at != top; at = filepath.Dir(at) {
				for end := time.After(10 * time.Second); os.Remove(at) != nil; {
					if left, _ := filepath.Glob(at + "/*/"); len(left) > 0 {
						break // others are still in it
					}
					select {
					case <-time.After(10 * time.Millisecond):
						continue
					case <-end:
					}
					break
				}
			}
		})
	}
	allowed := func() map[string]string {
		found := map[string]string{}
		for group, pid := range processes {
			status, rerr := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			_, list, _ := strings.Cut(string(status), "Cpus_allowed_list:\t")
			if found[group], _, _ = strings.Cut(list, "\n"); rerr != nil {
				t.Error(rerr)
			}
		}
		return found
	}
	const edge = "alonetest/burstable/pod1/edge"
	for _, group := range []string{edge, "alonetest/burstable/pod1/pause", "alonetest/burstable/pod2/c", "alonetest/besteffort/pod3/c", "alonedaemon"} {
		begin(group)
	}
	o := Options{Dir: filepath.Join(t.TempDir(), "run")}
	l, _, err := OpenPatiently(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := lane.Lane{APIVersion: lane.APIVersion, Kind: lane.Kind, Metadata: lane.Metadata{Name: "alone"}}
	want.Spec.CPUs.Count, want.Spec.Cgroup.Partition = 1, lane.Member
	p, _, err := l.Want([]lane.Lane{want}, false)
	if err == nil {
		_, err = l.Put(t.Context(), p)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(o.Dir) })
	cpus, others := p.Lanes[0].CPUs.String(), h.Usable().Difference(p.Lanes[0].CPUs).String()
	_, err = l.Attach(t.Context(), attached.Workload{Lane: "alone", Group: edge, Own: true, Alone: true})
	if err == nil {
		begin("alonetest/burstable/pod4/late")
		err = l.Apply(t.Context(), l.Placement)
	}
	seen := map[string]string{}
	for group := range processes {
		seen[group] = others
	}
	seen[edge] = cpus
	if now := allowed(); err != nil || !maps.Equal(now, seen) {
		t.Errorf("%v: in force on CPU %s: %v, expected %v", err, cpus, now, seen)
	}
	t.Logf("Linux %s: CPU %s of %s is the lane's: %v", h.Kernel.Release, cpus, all, seen)
	if _, err = l.Release(context.WithoutCancel(t.Context()), "alone"); err != nil {
		t.Fatal(err)
	}
	for group := range processes {
		seen[group] = all
		list, rerr := os.ReadFile(filepath.Join(top, group, "cpuset.cpus"))
		if has := strings.TrimSpace(string(list)); rerr == nil && has != "" && has != all && has != h.Possible().String() {
			t.Errorf("%s: cpuset.cpus is %s after release", group, has)
		}
	}
	if now := allowed(); !maps.Equal(now, seen) {
		t.Errorf("after release: %v", now)
	}
	t.Logf("after release: CPUs %s for all", all)
}
