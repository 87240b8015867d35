package process

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Foreground runs a command in the place of this process: with its files, and with all signals passed on. It
// returns the command's exit code, 128 and more where a signal has ended it.
func Foreground(child *exec.Cmd) (code int, err error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGALRM, unix.SIGCONT, unix.SIGWINCH)
	defer signal.Stop(signals)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	runtime.LockOSThread() // the child dies with the thread that started it (PR_SET_PDEATHSIG(2const))
	defer runtime.UnlockOSThread()
	if err = child.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		for {
			select {
			case <-ended:
				return
			case s := <-signals:
				if !fromTerminal(s) {
					_ = child.Process.Signal(s) // it may have ended
				}
			}
		}
	}()
	err = child.Wait()
	close(ended)
	<-passed
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return child.ProcessState.ExitCode(), nil
}

// fromTerminal says whether the child has had a signal too: a terminal sends those of its keys to all
// processes in its foreground.
func fromTerminal(s os.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT && s != unix.SIGWINCH {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}
