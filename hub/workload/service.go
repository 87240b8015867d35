package workload

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/history/diary"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/unit"
)

// service is a systemd unit. A drop-in, valid for this boot, attaches its lane to its cgroup before each
// start of its program. If that fails, the program does not start.
type service struct{ command }

func (s service) checkPossible(ctx context.Context, ours bool) error {
	if !s.spec.Root {
		return errors.New("spec.root: expected true: a service is root's to start and to end")
	}
	found, err := unit.Find(ctx, s.spec.Service)
	if err != nil {
		return fmt.Errorf("spec.service: %w", err)
	}
	if !ours && found.Runs() {
		return fmt.Errorf("spec.service: %s is %s and not the hub's: expected systemctl disable --now %[1]s",
			found.Name, found.State)
	}
	return nil
}

func (s service) isRunning(ctx context.Context, _ []int) (bool, error) {
	found, err := unit.Find(ctx, s.spec.Service)
	if err != nil {
		return false, err
	}
	_, missing := os.Stat(dropIn(found))
	if missing != nil || !found.Runs() {
		return false, nil
	}
	return true, checkStarted(found)
}

// checkStarted returns an api.NotYet for a service that is about to run, even between two failed starts.
func checkStarted(s unit.Service) error {
	if s.State != "activating" {
		return nil
	}
	return api.NotYet(fmt.Sprintf("service %s is activating (%s): expected active; journalctl -u %[1]s says why",
		s.Name, s.SubState))
}

func (s service) begin(ctx context.Context, _ *lanes.Lanes) error {
	found, err := unit.Find(ctx, s.spec.Service)
	if err != nil {
		return err
	}
	want, err := api.Lane(s.name, s.spec.Lane)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := strconv.Quote(self) + " attach --lane " + s.name + " --cgroup"
	text := fmt.Sprintf("# Written by isolane-hub agent: %s starts in lane %s.\n%s", found.Name, s.name,
		found.InLane(want, "", command, s.lanes.Paths))
	if err = unit.AddDropIn(ctx, dropIn(found), text); err != nil {
		return err
	}
	return found.Start(ctx)
}

func (s service) end(ctx context.Context) error {
	found, err := unit.Find(ctx, s.spec.Service)
	if _, unknown := errors.AsType[*unit.InputError](err); unknown { // it has gone since
		return unit.RemoveDropIn(ctx, dropIn(unit.Service{Name: s.spec.Service}))
	}
	if err != nil {
		return err
	}
	if _, missing := os.Stat(dropIn(found)); errors.Is(missing, fs.ErrNotExist) {
		return nil // it was not begun in this boot: what runs is not the hub's
	}
	err = s.endInBackground(ctx, func(ctx context.Context) (bool, error) {
		now, ferr := unit.Find(ctx, s.spec.Service) // it may have been stopped since
		return now.Runs(), ferr
	}, found.Stop)
	if err != nil {
		return err
	}
	return unit.RemoveDropIn(ctx, dropIn(found))
}

func (s service) whereOutput() string { return "journalctl -u " + s.spec.Service }

// Attach is the command of the drop-in: --lane NAME --cgroup GROUP.
func Attach(ctx context.Context, o lanes.Options, args []string) error {
	var at attached.Workload
	f := flag.NewFlagSet("attach", flag.ContinueOnError)
	f.StringVar(&at.Lane, "lane", "", "lane that is in force")
	f.StringVar(&at.Group, "cgroup", "", "of a service")
	if err := f.Parse(args); err != nil {
		return err
	}
	at.Own = true
	h := &diary.Host{Options: o, Out: os.Stderr,
		Diary: diary.Diary{Dir: history.Place(), Who: history.Caller("isolane-hub attach")}}
	a, err := h.Attach(ctx, at)
	if err == nil {
		a.Write(os.Stdout, at.Lane)
	}
	return err
}

// dropIn returns the file of the drop-in. It goes with a reboot, as lanes do.
func dropIn(s unit.Service) string {
	return filepath.Join("/run/systemd/system", s.Name+".d", "isolane-hub.conf")
}
