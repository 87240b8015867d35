package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// apart gives this thread its own files below /tmp and /var/tmp. In /proc it sees only processes of the user
// that it will become, and nothing with names of other lanes. It uses a mount namespace that passes nothing
// to the host.
func (l Lane) apart() error {
	if l.Private == "" {
		return nil
	}
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
	}
	if err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	private, err := unix.Open(l.Private, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", l.Private, err)
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} { // it may lie in one of them
		if err = unix.Mount(fmt.Sprint("/proc/thread-self/fd/", private), dir, "", unix.MS_BIND, ""); err == nil {
			err = unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "")
		}
		if err != nil {
			return fmt.Errorf("%s: %s in its place: %w", dir, l.Private, err)
		}
	}
	// Given by name, the option applies to this mount alone. Kernels before 5.8 know only its number, for all
	// mounts.
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err = unix.Mount("proc", "/proc", "proc", flags, "hidepid=invisible"); err != nil {
		return fmt.Errorf("/proc without the processes of others: expected Linux 5.8 or newer: %w", err)
	}
	return errors.Join(l.hideOthers(), unix.Close(private), unix.Chdir("/tmp"))
}

// become makes this thread another user's, without groups and without a way back (setresuid(2)). It then has
// no capabilities, because it has dropped those that programs could give it.
func (l Lane) become() error {
	if l.User == 0 {
		return nil
	}
	id := int(l.User)
	// Root's keys must not be available to it.
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	if err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("session keyring: %w", err)
	}
	if err := unix.Setgroups(nil); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := unix.Setresgid(id, id, id); err != nil {
		return fmt.Errorf("group %d: %w", id, err)
	}
	if err := unix.Setresuid(id, id, id); err != nil {
		return fmt.Errorf("user %d: %w", id, err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	return nil
}
