package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ending returns the signals that by default end this process. It leaves out ignored ones, such as SIGHUP
// under nohup(1) and SIGINT in the background of a shell: programs that this process becomes or starts ignore
// those too.
func Ending() []os.Signal {
	return slices.DeleteFunc([]os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP}, signal.Ignored)
}

// Before holds back signals that would end a program, while this process prepares to become it.
type Before chan os.Signal

// HoldBack starts holding signals back.
func HoldBack() Before {
	b := make(Before, 1)
	signal.Notify(b, Ending()...)
	return b
}

// Let restores what signals did when this process began. A signal that came meanwhile takes effect now.
func (b Before) Let() {
	// The kernel is told first: from here on a signal ends this process, and goes to no other Go channel. Go's
	// runtime would keep a handler, and execve ends the thread in which that may be about to run.
	for _, s := range Ending() {
		var byDefault [4]uintptr // struct sigaction of the kernel
		const size = 8           // of its mask
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s.(unix.Signal)),
			uintptr(unsafe.Pointer(&byDefault)), 0, size, 0, 0)
	}
	signal.Stop(b) // waits until b has what came before
	select {
	case s := <-b:
		_ = unix.Kill(os.Getpid(), s.(unix.Signal)) // this ends the process
	default:
	}
}

// Foreground runs a command in place of this process: with its files, and with all signals passed on. It
// returns the command's exit code, or 128 and more if a signal has ended it. If ctx has ended it does not
// start the command.
func Foreground(ctx context.Context, child *exec.Cmd) (code int, err error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, append(Ending(), unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGCONT,
		unix.SIGWINCH)...)
	defer signal.Stop(signals)
	if ctx.Err() != nil { // a later signal is passed on
		return 0, context.Cause(ctx)
	}
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

// fromTerminal reports whether the child has got a signal too: a terminal sends the signals of its keys to
// all foreground processes.
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
