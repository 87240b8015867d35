package lanes

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
)

// BenchmarkAttach brings a lane to the cgroup of a container below that of a pod, as the node part does, in a process that
// goes on; then the lane leaves it.
func BenchmarkAttach(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	h, err := host.Read(host.Live())
	if err != nil {
		b.Fatal(err)
	}
	o := Options{Dir: filepath.Join("/dev/shm", "isolane-bench-attach")} // in memory, as a host's record
	change := func(do func(l *Lanes) error) {
		b.Helper()
		l, _, oerr := OpenPatiently(b.Context(), o)
		if oerr != nil {
			b.Fatal(oerr)
		}
		if err := errors.Join(do(l), l.Close()); err != nil {
			b.Fatal(err)
		}
	}
	change(func(l *Lanes) error {
		want := lane.Lane{APIVersion: lane.APIVersion, Kind: lane.Kind, Metadata: lane.Metadata{Name: "bench"}}
		want.Spec.CPUs.Count = 1
		p, _, werr := l.Want([]lane.Lane{want}, false)
		if werr == nil {
			_, werr = l.Put(b.Context(), p)
		}
		return werr
	})
	b.Cleanup(func() {
		l, _, oerr := OpenPatiently(context.Background(), o)
		if oerr == nil {
			_, oerr = l.Release(context.Background(), "bench")
			oerr = errors.Join(oerr, l.Close())
		}
		if oerr != nil {
			b.Error(oerr)
			return
		}
		_ = os.RemoveAll(o.Dir)
	})
	container := pod(b, h)
	var opened, attach, groups time.Duration
	var used int64 // CPU time in ns
	for b.Loop() {
		began := time.Now()
		used -= cpuTime(b)
		change(func(l *Lanes) error {
			opened += time.Since(began)
			was := time.Now()
			_, aerr := l.Attach(b.Context(), attached.Workload{Lane: "bench", Group: container, Own: true})
			attach += time.Since(was)
			was = time.Now()
			if aerr == nil {
				_, aerr = l.Groups()
			}
			groups += time.Since(was)
			return aerr
		})
		b.StopTimer()
		used += cpuTime(b)
		change(func(l *Lanes) error {
			return errors.Join(l.Detach(b.Context(), l.Attached[0]), l.Apply(b.Context(), l.Placement))
		})
		b.StartTimer()
	}
	b.ReportMetric(float64(used)/float64(b.N)/1e3, "cpu-µs")
	b.ReportMetric(float64(opened.Microseconds())/float64(b.N), "open-µs")
	b.ReportMetric(float64(attach.Microseconds())/float64(b.N), "attach-µs")
	b.ReportMetric(float64(groups.Microseconds())/float64(b.N), "groups-µs")
}

// cpuTime is what this process has used, in nanoseconds.
func cpuTime(b *testing.B) int64 {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}

// pod makes the cgroup of a container in that of a pod, off the lane's CPUs as the container runtime makes it, with a
// process that sleeps.
func pod(b *testing.B, h host.Host) string {
	b.Helper()
	top, v2 := h.Kernel.Cgroup.Cpuset()
	dir := filepath.Join(top, "attachbench", "pod", "container")
	for at := top; ; {
		rest := strings.TrimPrefix(dir, at+"/")
		first, _, more := strings.Cut(rest, "/")
		at = filepath.Join(at, first)
		if err := os.Mkdir(at, 0o755); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			for end := time.Now().Add(10 * time.Second); os.Remove(at) != nil && time.Now().Before(end); {
				<-time.After(10 * time.Millisecond) // it stays busy for a moment
			}
		})
		if cpus := h.Usable(); !v2 {
			if !more {
				cpus = cpus.Difference(cpuset.Of(cpus.Last()))
			}
			for name, set := range map[string]string{"cpuset.cpus": cpus.String(), "cpuset.mems": h.MemoryNodes().String()} {
				if err := os.WriteFile(filepath.Join(at, name), []byte(set), 0o600); err != nil {
					b.Fatal(err)
				}
			}
		}
		if !more {
			break
		}
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil && !errors.Is(err, unix.ESRCH) {
		b.Fatal(err)
	}
	return dir
}
