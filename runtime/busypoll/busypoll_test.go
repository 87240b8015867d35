package busypoll

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
)

// What another process has opened polls while it is among ours, and no longer: its sockets by themselves,
// those in an epoll by the epoll. What it has chosen itself stays.
func TestOnce(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "ISOLANE_TEST_BUSYPOLL=1")
	ask, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = ask.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	answers := json.NewDecoder(out)
	p := New(host.Live())
	look := func(when string, want values) {
		t.Helper()
		var got values
		if _, err := ask.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		if err := answers.Decode(&got); err != nil || got != want {
			t.Errorf("%s: found %+v (%v), expected %+v", when, got, err, want)
		}
	}
	look("at first", values{Chosen: 7})
	p.Once([]int{cmd.Process.Pid})
	polls := values{Plain: microseconds, Chosen: 7}
	if kernelHas(t) {
		polls.Epoll = microseconds
	}
	look("in the lane", polls)
	p.Once([]int{cmd.Process.Pid})
	look("again", polls)
	p.Once(nil)
	look("no longer", values{Chosen: 7})
}

// kernelHas says whether an epoll can be set by itself.
func kernelHas(t *testing.T) bool {
	t.Helper()
	h, err := host.Read(host.Live())
	if err != nil {
		t.Fatal(err)
	}
	return h.Kernel.AtLeast(6, 9)
}

// values are those of a plain socket, one in an epoll, one with a value of its own, and of the epoll.
type values struct{ Plain, Watched, Chosen, Epoll int }

// answer says them for each byte that is read.
func answer() (bool, error) {
	if os.Getenv("ISOLANE_TEST_BUSYPOLL") == "" {
		return false, nil
	}
	var s [3]int
	for i := range s {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return true, err
		}
		s[i] = fd
	}
	epoll, err := unix.EpollCreate1(0)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, s[1], &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err == nil {
		err = unix.SetsockoptInt(s[2], unix.SOL_SOCKET, unix.SO_BUSY_POLL, 7)
	}
	if err != nil {
		return true, err
	}
	for {
		if n, _ := os.Stdin.Read(make([]byte, 1)); n == 0 {
			return true, nil
		}
		var params epollParams
		ioctl(epoll, unix.EPIOCGPARAMS, &params) // before 6.9: 0
		v := values{Epoll: int(params.microseconds)}
		for fd, to := range map[int]*int{s[0]: &v.Plain, s[1]: &v.Watched, s[2]: &v.Chosen} {
			if *to, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL); err != nil {
				return true, err
			}
		}
		if err = json.NewEncoder(os.Stdout).Encode(v); err != nil {
			return true, err
		}
	}
}

func TestMain(m *testing.M) { hosttest.Main(m, answer) }
