// Package inside is what runs in the namespaces of a node: its first process, and the entry for other
// programs.
package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Config is what the first process of a node reads from its standard input.
type Config struct {
	Hostname string
	// State is a folder of the host with the node's disk, which survives a restart of the node.
	State string
	// Topology has the folders cpu and node of the node's /sys/devices/system; "": the host's.
	Topology string
	// Systemd makes the host's systemd create the cgroups of pods: the node has its bus, and no PID namespace.
	Systemd bool
	Env     []string
	Daemons []Daemon // in the order of their start
}

// Daemon is a program that is restarted whenever it ends.
type Daemon struct {
	Args []string
	Log  string // a file of the host
	// Ready is a file that exists once the daemon serves; the next daemon waits for it. "": it does not wait.
	Ready string
	First [][]string // commands that run before its first start, each until it has ended well
}

// pause is how long after its end a daemon is restarted, as by systemd for the kubelet and containerd.
const pause = time.Second

// Init is the first process of a node's PID namespace. It makes the node's own mounts, and keeps the daemons
// running until it is killed, and all others in the namespace with it.
func Init(in io.Reader) error {
	var c Config
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	switch {
	case c.Systemd: // orphans of daemons come to this process nevertheless
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("subreaper: %w", err)
		}
	case os.Getpid() != 1:
		return errors.New("expected to be the first process of a PID namespace: kubebed up starts it")
	}
	if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
		return fmt.Errorf("hostname %s: %w", c.Hostname, err)
	}
	if err := c.mount(); err != nil {
		return err
	}
	const forward = "/proc/sys/net/ipv4/ip_forward" // of the node's network namespace
	if err := os.WriteFile(forward, []byte("1"), 0o644); err != nil {
		return err
	}
	return c.supervise()
}

// supervise starts the daemons, and is the parent of all orphans.
func (c Config) supervise() error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	again, ready := make(chan int, len(c.Daemons)), time.NewTicker(20*time.Millisecond)
	running := map[int]int{} // index of a daemon by its process
	started := 0
	start := func(i int) error {
		pid, err := c.Daemons[i].start(c.Env)
		running[pid] = i
		return err
	}
	for {
		if started < len(c.Daemons) && (started == 0 || c.Daemons[started-1].serves()) {
			err := c.Daemons[started].first(c.Env)
			if err == nil {
				err = start(started)
			}
			if err != nil {
				return err
			}
			started++
		}
		if started == len(c.Daemons) {
			ready.Stop()
		}
		select {
		case <-ready.C:
		case i := <-again:
			if err := start(i); err != nil {
				return err
			}
		case <-ended:
			for _, pid := range reap() {
				if i, ok := running[pid]; ok {
					delete(running, pid)
					time.AfterFunc(pause, func() { again <- i })
				}
			}
		}
	}
}

// reap returns the children that have ended.
func reap() (pids []int) {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || pid == 0:
			return pids
		default:
			pids = append(pids, pid)
		}
	}
}

func (d Daemon) first(env []string) error {
	for _, args := range d.First {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

func (d Daemon) serves() bool {
	_, err := os.Stat(d.Ready)
	return d.Ready == "" || err == nil
}

// start starts the daemon and releases it: reap waits for all children.
func (d Daemon) start(env []string) (int, error) {
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	p, err := os.StartProcess(d.Args[0], d.Args, &os.ProcAttr{Env: env, Files: []*os.File{nil, log, log}})
	if err != nil {
		return 0, err
	}
	pid := p.Pid
	return pid, p.Release()
}
