package vpp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/machine"
)

const vppctl = "vppctl"

// notRunning says why no VPP can be asked. What was made in an earlier one is gone: VPP keeps nothing.
type notRunning string

func (n notRunning) Error() string { return string(n) }

// ask returns what vppctl prints for a command. VPP prints its errors as ordinary text, with exit code 0.
func ask(ctx context.Context, command string) (string, error) {
	const wait = 10 * time.Second
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := machine.Command(limited, vppctl, strings.Fields(command)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	runtime.LockOSThread() // the tool dies with this thread: so it changes nothing after a SIGKILL of Isolane
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	err := cmd.Run()
	said := strings.TrimSpace(errs.String())
	switch {
	case errors.Is(err, exec.ErrNotFound):
		err = notRunning(vppctl + " is not there: expected VPP (package vpp)")
	case err == nil || ctx.Err() != nil:
	case limited.Err() != nil:
		err = fmt.Errorf("%s %s: no answer within %s: does VPP hang?", vppctl, command, wait)
	case strings.Contains(said, "Permission denied"):
		err = fmt.Errorf("%s: /run/vpp/cli.sock: %s: needs root: %w", vppctl, said, fs.ErrPermission)
	case strings.Contains(said, "CLI socket") || strings.HasPrefix(said, "connect: "):
		err = notRunning(vppctl + ": " + said + ": is VPP running? systemctl start vpp")
	default:
		err = fmt.Errorf("%s %s: %w: %s", vppctl, command, err, said)
	}
	colour := regexp.MustCompile("\x1b\\[[0-9;]*m") // tables have colours, whatever the terminal
	return strings.TrimSpace(colour.ReplaceAllString(out.String(), "")), err
}

// change runs commands until VPP refuses one. A command that makes something prints its name; others print
// nothing.
func change(ctx context.Context, commands ...string) error {
	fine := regexp.MustCompile(`^(\S*|create bridge-domain: bridge domain (in use|ID does not exist).*)$`)
	for _, c := range commands {
		out, err := ask(ctx, c)
		if err == nil && !fine.MatchString(out) {
			err = fmt.Errorf("%s %s: %s", vppctl, c, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// oldest is the first version that accepts the startup.conf of a lane.
const oldestMajor, oldestMinor = 24, 10

// version returns the version of the running VPP. A version before oldest is an error.
func version(ctx context.Context) (major, minor int, err error) {
	out, err := ask(ctx, "show version")
	if err != nil {
		return 0, 0, err
	}
	if _, err = fmt.Sscanf(out, "vpp v%d.%d", &major, &minor); err != nil {
		return 0, 0, fmt.Errorf("%s show version: %q: %w", vppctl, out, err)
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		err = fmt.Errorf("VPP %d.%02d runs: expected %d.%d or later", major, minor, oldestMajor, oldestMinor)
	}
	return major, minor, err
}

// untested warns of a version of VPP that nobody has tried.
func untested(ctx context.Context) string {
	major, minor, err := version(ctx)
	if err != nil || major == 26 && minor == 10 {
		return ""
	}
	return fmt.Sprintf(" (VPP %d.%02d is untested: only 26.10 was tried)", major, minor)
}

// face is an interface of VPP's.
type face struct {
	up     bool
	bridge int    // its bridge domain; 0: none
	has    string // the bridge domain, an address, or the interface that it is connected with
}

// faces parses the output of `show interface address`: a line for each interface, with indented lines for
// what it has.
func faces(text string) map[string]face {
	all := map[string]face{}
	name := ""
	for line := range strings.Lines(text) {
		f := all[name]
		if m := regexp.MustCompile(`^(\S+) \((up|dn)\):`).FindStringSubmatch(line); m != nil {
			name, f = m[1], face{up: m[2] == "up"}
		} else if f.has == "" {
			f.has = strings.TrimSpace(line)
			_, _ = fmt.Sscanf(f.has, "L2 bridge bd-id %d", &f.bridge) // else it is in none
		}
		all[name] = f
	}
	return all
}

// reader asks VPP once for all that is inspected together.
type reader struct {
	sync.Mutex
	at  time.Time
	all map[string]face
}

// fresh is how long an answer is reused.
const fresh = 200 * time.Millisecond

func (r *reader) faces(ctx context.Context) (map[string]face, error) {
	r.Lock()
	defer r.Unlock()
	if time.Since(r.at) < fresh {
		return r.all, nil
	}
	out, err := ask(ctx, "show interface address")
	if err == nil {
		r.all, r.at = faces(out), time.Now()
	}
	return r.all, err
}

// forget drops the answers when something is changed.
func (r *reader) forget() {
	r.Lock()
	defer r.Unlock()
	r.at = time.Time{}
}
