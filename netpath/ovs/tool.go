package ovs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"isolane.dev/isolane/journal"
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
	err := cmd.Run()
	said := strings.TrimSpace(errs.String())
	said = said[strings.LastIndexByte(said, '\n')+1:]
	switch {
	case errors.Is(err, exec.ErrNotFound):
		err = fmt.Errorf("%s is not there: expected Open vSwitch (package openvswitch-switch)", name)
	case err == nil || ctx.Err() != nil:
	case strings.Contains(said, "ermission denied"):
		err = fmt.Errorf("%s: %w", said, fs.ErrPermission)
	case strings.Contains(said, "connection failed") || strings.Contains(said, "failed to connect"):
		err = fmt.Errorf("%s: is it running? systemctl start openvswitch-switch", said)
	case said == "": // the time is over, and a signal has ended it
		err = fmt.Errorf("%s: no answer within %s s: is ovs-vswitchd running?", name, seconds)
	default:
		err = errors.New(said)
	}
	return out.String(), err
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

func digest(value string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(value)) // never fails
	return fmt.Sprintf("x%08x", h.Sum32())
}

// step is one that makes what value describes.
func step(kind, target string, value any) journal.Step {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // plain data
	}
	return journal.Step{Kind: kind, Target: target, After: string(data)}
}

// parse reads the value of a step; that of one which takes away is in Before.
func parse[T bridge | port](s journal.Step) (v T, err error) {
	if err = json.Unmarshal([]byte(cmp.Or(s.After, s.Before)), &v); err != nil {
		err = fmt.Errorf("%q: expected a description in JSON", cmp.Or(s.After, s.Before))
	}
	return v, err
}

// earlier is what there is of Isolane's from before the last boot, which counts as nothing.
const earlier = "one of an earlier boot"

// silent begins what is said to be there where Open vSwitch cannot be asked. It is a value, so that lanes can
// be looked at while it is started anew, and no error.
const silent = "unknown: "

// present is what a step's target is like, by its mark.
func present(s journal.Step, kind, marked string) string {
	switch marked {
	case "":
		return "a " + kind + " that isolane did not make"
	case mark(s.Replaced):
		return s.Replaced
	case mark(s.After):
		return s.After
	case mark(s.Before):
		return s.Before
	}
	if leftover(marked) {
		return ""
	}
	return "a " + kind + " that isolane made otherwise"
}

// overwriter lets a step be taken back of which is not known whether it is in force.
type overwriter struct{}

// MayOverwrite says so.
func (overwriter) MayOverwrite(_ journal.Step, now string) bool {
	return strings.HasPrefix(now, silent)
}
