package rtla

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// Where tracefs is, and what rtla creates there while it runs.
const (
	tracing  = "sys/kernel/tracing"
	instance = tracing + "/instances/timerlat_hist"
)

// Missing says what rtla or the kernel lacks for user threads. timerlat has them since Linux 6.5; a kernel
// thread is no thread of the lane.
func (Probe) Missing(ctx context.Context, root fs.FS) (what, remedy string) {
	version, userThreads := describe(ctx)
	if !userThreads {
		return strings.TrimSpace("rtla "+version) + " has no threads of its own (timerlat hist --user-threads)",
			"install rtla of Linux 6.5 or later; Debian has it since release 13"
	}
	return missing(root)
}

// missing says what the kernel lacks.
func missing(root fs.FS) (what, remedy string) {
	tracers, err := fs.ReadFile(root, tracing+"/available_tracers")
	if err != nil {
		return "rtla needs tracefs, which is not mounted at /" + tracing, "mount -t tracefs tracefs /" + tracing
	}
	if !slices.Contains(strings.Fields(string(tracers)), "timerlat") {
		return "rtla needs the timerlat tracer, which this kernel does not have",
			"boot a kernel with CONFIG_TIMERLAT_TRACER=y; Debian: apt-get install linux-image-rt-" + runtime.GOARCH
	}
	// Only a measuring thread can open it.
	if _, err = fs.Lstat(root, tracing+"/osnoise/per_cpu/cpu0/timerlat_fd"); err != nil {
		return "the timerlat tracer of this kernel takes no threads of programs", "boot Linux 6.5 or later"
	}
	if _, err = fs.Lstat(root, instance); err == nil {
		return "another rtla timerlat hist runs, or one was killed and left its trace",
			"end it; then: rmdir /" + instance
	}
	return "", ""
}

// describe returns rtla's version, "6.12", and reports whether it knows --user-threads. The exit code after
// the help differs between versions.
func describe(ctx context.Context) (version string, userThreads bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, Program, "timerlat", "hist", "--help")
	cmd.WaitDelay = time.Second
	help, _ := cmd.CombinedOutput()
	if _, rest, ok := strings.Cut(string(help), "(version "); ok {
		number, _, closed := strings.Cut(rest, ")")
		if closed && len(number) < 20 && !strings.ContainsAny(number, " \n") {
			version = number
		}
	}
	return version, bytes.Contains(help, []byte("--user-threads"))
}

// Patience is how long rtla may take beside warm-up and window. It first reads the descriptions of all events
// of the kernel, which takes most of a minute on an emulated processor.
func (Probe) Patience() time.Duration { return 90 * time.Second }

// Restores is how long rtla may take to restore the tracer when asked to end.
func (Probe) Restores() time.Duration { return 20 * time.Second }

// Run runs rtla on the CPUs that this process may use, with a thread on each.
func (p Probe) Run(ctx context.Context, c probe.Conditions) (results.Measurement, error) {
	m := results.Measurement{Name: c.Name, Window: results.Nanoseconds(c.Window)}
	cpus, err := p.cpus()
	if err != nil {
		return m, err
	}
	version, userThreads := describe(ctx)
	if what, remedy := missing(os.DirFS("/")); !userThreads || what != "" { // the session has asked before, too
		return m, fmt.Errorf("rtla %s: %s: %s", version, what, remedy)
	}
	runtime.LockOSThread() // Pdeathsig is sent when the thread that started rtla ends
	defer runtime.UnlockOSThread()
	argv := p.argv(cpus, c)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	// rtla restores the tracer on SIGINT, and on no other signal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &said, p.Restores()-time.Second
	if err = cmd.Run(); err != nil {
		return m, fmt.Errorf("rtla: %w: %s", err, strings.Join(strings.Fields(said.String()), " "))
	}
	m, err = p.parse(out.Bytes(), cpus, c)
	m.Facts, m.Conditions = map[string]string{"version": version}, []string{"version"}
	return m, err
}

// cpus returns the CPUs of the threads.
func (p Probe) cpus() (cpuset.Set, error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return cpuset.Set{}, fmt.Errorf("affinity: %w", err)
	}
	if p.Threads > allowed.Count() {
		return cpuset.Set{}, fmt.Errorf("threads: %d: expected at most %d, the CPUs that the process may use",
			p.Threads, allowed.Count())
	}
	wanted := cmp.Or(p.Threads, allowed.Count())
	var all []int
	for cpu := 0; len(all) < wanted; cpu++ {
		if allowed.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	return cpuset.Of(all...), nil
}

// argv returns the command line of rtla.
func (p Probe) argv(cpus cpuset.Set, c probe.Conditions) []string {
	argv := []string{Program, "timerlat", "hist", "--user-threads", "--cpus", cpus.String(),
		"--priority", "f:" + strconv.Itoa(p.Priority),
		"--period", strconv.Itoa(int(p.Interval.Duration() / time.Microsecond)),
		"--duration", seconds(c.Window), "--nano", "--bucket-size", strconv.Itoa(int(bucket)),
		"--entries", strconv.Itoa(buckets), "--no-aa"}
	if c.Warmup > 0 {
		argv = append(argv, "--warm-up", strconv.Itoa(int(c.Warmup/time.Second)))
	}
	if p.HoldIdle {
		argv = append(argv, "--dma-latency", "0")
	}
	return argv
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d/time.Second)) + "s" }
