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

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/machine"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
)

const (
	vsctl = "ovs-vsctl"
	ofctl = "ovs-ofctl"
)

// seconds is how long a tool may take.
const seconds = "10"

// run runs a tool of Open vSwitch once, and returns its output and the last line of its errors.
func run(ctx context.Context, name, stdin string, args ...string) (out, said string, err error) {
	var output, errs bytes.Buffer
	cmd := machine.Command(ctx, name, append([]string{"--timeout=" + seconds}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &output, &errs
	runtime.LockOSThread() // the tool dies with this thread: so it changes nothing after a SIGKILL of Isolane
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	err = cmd.Run()
	said = strings.TrimSpace(errs.String())
	return output.String(), said[strings.LastIndexByte(said, '\n')+1:], err
}

// hungUp reports whether ovs-vswitchd closed a connection before it was asked anything, as a busy one does
// now and then that has just made the bridge.
func hungUp(said string) bool {
	return strings.Contains(said, "failed to open socket (Broken pipe)") ||
		strings.Contains(said, "failed to open socket (Connection reset by peer)")
}

// tool runs a tool of Open vSwitch and returns its output. A change waits until ovs-vswitchd has made it, for
// a limited time.
func tool(ctx context.Context, name, stdin string, args ...string) (string, error) {
	out, said, err := run(ctx, name, stdin, args...)
	for tries := 0; err != nil && hungUp(said) && tries < 5; tries++ {
		out, said, err = run(ctx, name, stdin, args...)
	}
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
	case said == "" || strings.Contains(said, "Alarm clock"): // it took too long
		err = unanswered(fmt.Errorf("%s: no answer within %s s: is ovs-vswitchd running?", name, seconds))
	default:
		err = errors.New(said)
	}
	return out, err
}

func unanswered(why error) error { return &journal.UnansweredError{Err: why} }

// nobody says why the database could not be asked.
type nobody string

func (n nobody) Error() string { return string(n) }

// removed reports from an error of tool whether this host no longer has a database of Open vSwitch: neither a
// server, nor the file in its usual place (ovsdb-server(1)). Then its content is gone too.
func removed(err error) bool {
	if !errors.As(err, new(nobody)) {
		return false
	}
	return !machine.Has(filepath.Join(cmp.Or(os.Getenv("OVS_DBDIR"), "/etc/openvswitch"), "conf.db"))
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

// version asks ovs-vswitchd, the daemon that puts the database into effect, for its version.
func version(ctx context.Context) (major, minor int, err error) {
	out, err := tool(ctx, "ovs-appctl", "", "--target=ovs-vswitchd", "version")
	if err == nil {
		if _, err = fmt.Sscanf(out, "ovs-vswitchd (Open vSwitch) %d.%d", &major, &minor); err != nil {
			err = fmt.Errorf("ovs-appctl version: %q: %w", out, err)
		}
	}
	return major, minor, err
}

// untested warns of a version before 2.17, a long-term release of 2022: nobody has tried it.
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

// mark returns the mark for what Isolane has made for this value since the last boot.
func mark(value string) string { return boot() + "." + digest(value) }

// leftover reports whether a mark is from an earlier boot.
func leftover(mark string) bool { return mark != "" && !strings.HasPrefix(mark, boot()+".") }

func boot() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // if it cannot be read all boots look the same
	return digest(string(id))
}

// digest returns a digest that begins with a letter, so that ovs-vsctl(8) takes it for a word.
func digest(value string) string { return "x" + netpath.Digest(value) }
