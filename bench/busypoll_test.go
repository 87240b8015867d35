package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/runtime/busypoll"
)

const busyPollFile = "/proc/sys/net/core/busy_poll"

// readEpoll makes this binary a program that is no lane's: it sleeps in epoll_wait and answers each datagram.
func readEpoll() (bool, error) {
	if os.Getenv("ISOLANE_BENCH") != "epoll" {
		return false, nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return true, err
	}
	if err = unix.Bind(fd, &unix.SockaddrInet4{Port: 7007}); err != nil {
		return true, err
	}
	epoll, err := unix.EpollCreate1(0)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	buf, events := make([]byte, 64), make([]unix.EpollEvent, 1)
	for err == nil {
		if _, err = unix.EpollWait(epoll, events, -1); errors.Is(err, unix.EINTR) {
			err = nil
		}
		n, from, rerr := unix.Recvfrom(fd, buf, 0)
		if rerr != nil || err != nil {
			continue
		}
		if err = unix.Sendto(fd, buf[:n], 0, from); errors.Is(err, unix.ECONNREFUSED) { // who asked has ended
			err = nil
		}
	}
	return true, err
}

// BenchmarkBusyPoll measures what polling costs a reader in epoll_wait that has not asked for it, and what it gives
// one that has: pairs of one that sleeps and of net.core.busy_poll, the whole host's, or its own setting.
func BenchmarkBusyPoll(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.CPUs(2), hosttest.Program("ip"))
	was, err := os.ReadFile(busyPollFile)
	if err != nil {
		b.Skip("this kernel has no busy polling")
	}
	wholeHost := func(text string) {
		if werr := os.WriteFile(busyPollFile, []byte(text), 0); werr != nil {
			b.Error(werr)
		}
	}
	b.Cleanup(func() { wholeHost(string(was)) })
	cpus, self := ends(b)
	for _, way := range []string{"host", "own"} {
		b.Run(way, func(b *testing.B) {
			network(b)
			for _, ns := range []string{"isolane-bench-a", "isolane-bench-b"} { // as frames of network cards come
				_, gerr := netdev.Offload(ns, "eth0", unix.ETHTOOL_SGRO, 1)
				_, terr := netdev.Offload(ns, "eth0", unix.ETHTOOL_STSO, 0)
				if err := errors.Join(gerr, terr); err != nil {
					b.Fatal(err)
				}
			}
			polls := func() map[string]float64 {
				if way == "own" {
					return reader(b, cpus, self, true)
				}
				wholeHost("1000")
				defer wholeHost("0")
				return reader(b, cpus, self, false)
			}
			for b.Loop() {
				comparePairs(b, [2]string{"polls", "sleeps"}, polls, func() map[string]float64 { return reader(b, cpus, self, false) })
			}
		})
	}
}

// reader is what a second of 1,500 to 2,000 datagrams costs one that reads by epoll, and takes them.
func reader(b *testing.B, cpus []string, self string, own bool) map[string]float64 {
	b.Helper()
	start := func(netns, cpu string, argv ...string) *exec.Cmd {
		return exec.CommandContext(b.Context(), "ip", append([]string{"netns", "exec", netns, "taskset", "-c", cpu}, argv...)...)
	}
	s := start("isolane-bench-b", cpus[1], "env", "ISOLANE_BENCH=epoll", self)
	if err := s.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Process.Kill(); err != nil {
			b.Error(err)
		}
		_ = s.Wait() // it was killed
	}()
	<-time.After(200 * time.Millisecond) // until it reads
	if own {
		p := busypoll.New(host.Live())
		p.Once([]int{s.Process.Pid})
		defer p.End()
	}
	before, began := ran(b, s.Process.Pid), time.Now()
	c := start("isolane-bench-a", cpus[0], "env", "ISOLANE_BENCH=client", "ISOLANE_BENCH_ECHO={gap: 500us, wait: block}", self)
	c.Stderr = os.Stderr
	out, err := c.Output()
	var f floor
	if err == nil {
		f, err = readFloor(out)
	}
	if err != nil {
		b.Fatalf("%q: %v", out, err)
	}
	took := time.Since(began)
	return map[string]float64{"CPU-%": 100 * float64(ran(b, s.Process.Pid)-before) / float64(took),
		"P50-us": float64(f.P50) / 1e3, "P99-us": float64(f.P99) / 1e3}
}

// ran is how long a process's threads have had a CPU.
func ran(b *testing.B, pid int) (all time.Duration) {
	b.Helper()
	for _, tid := range task.Threads(host.Live(), pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid))
		if err != nil {
			continue
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		all += time.Duration(ns)
	}
	return all
}
