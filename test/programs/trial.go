package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
)

// trial says how programs are tried.
type trial struct {
	lane    string
	cpus    cpuset.Set // of the lane
	work    cpuset.Set // those of them that should be used
	window  time.Duration
	threads int // that should be busy
	attach  bool
}

// laneCPUs returns the CPUs of a lane in force.
func laneCPUs(name string) (cpuset.Set, error) {
	text, err := exec.Command("isolane", "status", "-o", "json").Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) { // the exit code is 3 if something is not as it should be
		return cpuset.Set{}, err
	}
	var status struct{ Lanes []struct{ Name, CPUs string } }
	if err = json.Unmarshal(text, &status); err != nil {
		return cpuset.Set{}, fmt.Errorf("isolane status: %w", err)
	}
	for _, l := range status.Lanes {
		if l.Name == name {
			return cpuset.Parse(l.CPUs)
		}
	}
	return cpuset.Set{}, fmt.Errorf("lane %s: isolane status knows none", name)
}

// try starts a program and what loads it, puts it into the lane, counts, and ends everything.
func (t trial) try(p program) (err error) {
	dir, err := os.MkdirTemp("", "programs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	v, err := t.values(dir)
	if err != nil {
		return err
	}
	if p.files != nil {
		if err = p.files(dir, v); err != nil {
			return err
		}
	}
	log, err := os.Create(dir + "/log")
	if err != nil {
		return err
	}
	defer log.Close()
	var started []*exec.Cmd
	defer func() {
		err = errors.Join(err, end(started))
		if err != nil {
			text, _ := os.ReadFile(log.Name())
			fmt.Fprintf(os.Stderr, "%s says:\n%s\n", p.name, text[max(0, len(text)-1000):])
		}
	}()
	start := func(argv []string) error {
		c := exec.Command(argv[0], argv[1:]...)
		c.Stdout, c.Stderr = log, log
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
		started = append(started, c)
		return c.Start()
	}
	inside := strings.Fields(v.Replace(p.inside))
	if !t.attach {
		inside = append([]string{"isolane", "run", "--lane", t.lane, "--"}, inside...)
	}
	outside := strings.Fields(v.Replace(p.outside))
	if err = start(inside); err != nil {
		return err
	}
	pid := started[len(started)-1].Process.Pid
	if len(outside) > 0 {
		if err = start(outside); err != nil {
			return err
		}
	}
	return t.counted(p.name, pid)
}

// values gives a trial its own port.
func (t trial) values(dir string) (*strings.Replacer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // it does not wait
	if err != nil {
		return nil, err
	}
	return values(dir, self, l.Addr().(*net.TCPAddr).Port, t.threads), l.Close()
}

const patience = 2 * time.Minute // for an emulated machine

// loaded waits until what isolane run has started has become its program, and so many threads are busy.
func (t trial) loaded(busy int, pids ...int) error {
	for began := time.Now(); ; <-time.After(look) {
		comms := ""
		for _, pid := range pids {
			comm, _, err := readStat(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil {
				return err
			}
			comms += comm + " "
		}
		c, err := measure(t.cpus, t.work, time.Second, pids...)
		if err != nil {
			return err
		}
		if !strings.Contains(comms, "isolane ") && c.busy() >= busy {
			return nil
		}
		if time.Since(began) > patience {
			c.write(os.Stderr)
			return fmt.Errorf("expected %d busy threads of %swithin %v, found %d", busy, comms, patience, c.busy())
		}
	}
}

// counted waits until the program is busy, attaches it if required, and counts.
func (t trial) counted(name string, pid int) error {
	if err := t.loaded(t.threads, pid); err != nil {
		return err
	}
	how := "run"
	if t.attach {
		how = "attach"
		out, err := exec.Command("isolane", "attach", "--lane", t.lane, "--pid", fmt.Sprint(pid)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("attach: %w: %s", err, out)
		}
		<-time.After(time.Second) // for the kernel, which balances only at times
	}
	return t.count(name+" by "+how, t.threads, pid)
}

// count prints what processes did, and returns what is wrong with it.
func (t trial) count(what string, busy int, pids ...int) error {
	c, err := measure(t.cpus, t.work, t.window, pids...)
	for began := time.Now(); err == nil && c.busy() < busy && time.Since(began) < patience; {
		if len(c.faults(0)) > 0 {
			break
		}
		c, err = measure(t.cpus, t.work, t.window, pids...) // what loads them got no CPU: the machine is busy
	}
	if err != nil {
		return err
	}
	faults := c.faults(busy)
	verdict := "all in the lane, on all of its CPUs"
	if len(faults) > 0 {
		verdict = "NOT AS IN A LANE"
	}
	fmt.Printf("%s, %d busy threads on CPUs %s: %s\n", what, c.busy(), t.work, verdict)
	c.write(os.Stdout)
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// end ends what was started and all its descendants, and waits for that.
func end(started []*exec.Cmd) error {
	var errs []error
	for _, c := range started {
		if c.Process == nil {
			continue // it could not be started
		}
		all, err := tree(c.Process.Pid)
		errs = append(errs, err)
		for _, pid := range all {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		_ = c.Wait() // its exit code is that of the signal
	}
	return errors.Join(errs...)
}
