package ovs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
)

const (
	vsctl = "ovs-vsctl"
	ofctl = "ovs-ofctl"
)

// tool runs one of Open vSwitch's and returns its output. A change waits until ovs-vswitchd has made it, but
// not for ever.
func tool(ctx context.Context, name, stdin string, args ...string) (string, error) {
	const seconds = "10"
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, append([]string{"--timeout=" + seconds}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	runtime.LockOSThread() // whose end is that of the tool: it changes nothing after a SIGKILL of Isolane
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	said := strings.TrimSpace(errs.String())
	said = said[strings.LastIndexByte(said, '\n')+1:]
	switch {
	case errors.Is(err, exec.ErrNotFound):
		err = unanswered(nobody(name + " is not there: expected Open vSwitch (package openvswitch-switch)"))
	case err == nil || ctx.Err() != nil:
	case strings.Contains(said, "ermission denied"):
		err = fmt.Errorf("%s: needs root: %w", said, fs.ErrPermission)
	case strings.Contains(said, "connection failed (No such file"):
		err = unanswered(nobody(said + ": is it running? systemctl start openvswitch-switch"))
	case strings.Contains(said, "connection failed") || strings.Contains(said, "failed to connect"):
		err = unanswered(errors.New(said + ": is it running? systemctl start openvswitch-switch"))
	case strings.Contains(said, "is not a bridge") || strings.Contains(said, "cannot read pidfile"):
		err = unanswered(errors.New(said + ": is ovs-vswitchd running? systemctl start openvswitch-switch"))
	case said == "" || strings.Contains(said, "Alarm clock"): // the time is over
		err = unanswered(fmt.Errorf("%s: no answer within %s s: is ovs-vswitchd running?", name, seconds))
	default:
		err = errors.New(said)
	}
	return out.String(), err
}

func unanswered(why error) error { return &journal.UnansweredError{Err: why} }

// nobody says why nothing was there that could be asked for the database.
type nobody string

func (n nobody) Error() string { return string(n) }

// removed says of an error of tool that this host has no database of Open vSwitch any more: neither a server,
// nor the file in its usual place (ovsdb-server(1)). What was in it is gone too.
func removed(err error) bool {
	if !errors.As(err, new(nobody)) {
		return false
	}
	_, err = os.Stat(filepath.Join(cmp.Or(os.Getenv("OVS_DBDIR"), "/etc/openvswitch"), "conf.db"))
	return errors.Is(err, fs.ErrNotExist)
}

// change makes changes of the database in one transaction.
func change(ctx context.Context, commands [][]string) error {
	var args []string
	for _, c := range commands {
		args = append(append(args, "--"), c...)
	}
	if len(args) == 0 {
		return nil
	}
	_, err := tool(ctx, vsctl, "", args[1:]...)
	return err
}

// version asks ovs-vswitchd, which makes what is in the database.
func version(ctx context.Context) (major, minor int, err error) {
	out, err := tool(ctx, "ovs-appctl", "", "--target=ovs-vswitchd", "version")
	if err == nil {
		if _, err = fmt.Sscanf(out, "ovs-vswitchd (Open vSwitch) %d.%d", &major, &minor); err != nil {
			err = fmt.Errorf("ovs-appctl version: %q: %w", out, err)
		}
	}
	return major, minor, err
}

// untested says of a version before 2.17, a release with long support of 2022, that nobody has tried it.
func untested(ctx context.Context) string {
	major, minor, err := version(ctx)
	if err != nil || major > 2 || major == 2 && minor >= 17 {
		return ""
	}
	return fmt.Sprintf(" (Open vSwitch %d.%d is untested: expected 2.17 or later)", major, minor)
}

// Keys of external_ids.
const (
	markKey  = "isolane"
	flowsKey = "isolane-flows"
)

// mark says of what is in the database that Isolane has made it for this value, since the last boot.
func mark(value string) string { return boot() + "." + digest(value) }

// leftover says of a mark that it is of an earlier boot.
func leftover(mark string) bool { return mark != "" && !strings.HasPrefix(mark, boot()+".") }

func boot() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it all boots are one
	return digest(string(id))
}

// digest begins with a letter, so that ovs-vsctl(8) takes it for a word.
func digest(value string) string { return "x" + netpath.Digest(value) }
