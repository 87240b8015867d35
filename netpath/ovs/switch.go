package ovs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

// KindConfig is a key of other_config of Open vSwitch (ovs-vswitchd.conf.db(5)). The value "" means that it
// is not set.
const KindConfig = "ovs-config"

// Keys of a KindConfig. Poll-mode threads follow theirs at once; DPDK reads the others when it starts.
const (
	pmdMask   = "pmd-cpu-mask"
	lcoreMask = "dpdk-lcore-mask"
	socketMem = "dpdk-socket-mem"
)

// IsSwitch reports whether the path is a switch with lanes: ovs-dpdk is.
func (p Path) IsSwitch() bool { return p.DPDK }

// DeclaredSwitch says that poll-mode threads leave no CPU to the others of ovs-vswitchd, unless one CPU is
// all for them.
func (Path) DeclaredSwitch(spec lane.Spec) error {
	if spec.Roles["pmd"] > 0 || spec.CPUs.Count > 1 {
		return nil
	}
	return &lane.FieldError{Field: "spec.roles", Text: "expected {pmd: 1}, or two CPUs in spec.cpus.count: " +
		"spec.switch: " + spec.Switch + " has other threads too"}
}

// PossibleSwitch says why Open vSwitch's database cannot be reached. It need not run with DPDK yet.
func (Path) PossibleSwitch([]string) error {
	if _, err := read(context.Background()); err != nil {
		return fmt.Errorf("spec.switch: %w", err)
	}
	return nil
}

// SwitchSteps returns the steps that tell Open vSwitch the joint CPUs and memory of all its lanes.
func (Path) SwitchSteps(h host.Host, lanes []plan.Lane) ([]journal.Step, error) {
	var pmd cpuset.Set
	var mib []uint64 // of hugepages by node, up to the last node with memory
	all := make([]uint64, max(0, h.MemoryNodes().Last())+1)
	var rxq []journal.Step
	for _, l := range lanes {
		rxq = append(rxq, rxqStep(l)...)
		_, p := l.PollMode()
		pmd = pmd.Union(p)
		for _, pages := range l.Hugepages {
			all[pages.Node] += pages.Pages * (pages.PageBytes >> 20)
			mib = all
		}
	}
	steps := []journal.Step{
		{Kind: KindConfig, Target: pmdMask, After: "0x" + strings.ReplaceAll(pmd.Mask(), ",", "")},
		// DPDK ends its process if it may not run on these CPUs. Without the setting it takes one that it may use,
		// so Open vSwitch can start in its lane and, after a crash, outside of it.
		{Kind: KindConfig, Target: lcoreMask},
	}
	if len(mib) > 0 {
		text := strings.Trim(fmt.Sprint(mib), "[]")
		steps = append(steps, journal.Step{Kind: KindConfig, Target: socketMem,
			After: strings.ReplaceAll(text, " ", ",")})
	}
	return append(steps, rxq...), nil
}

// configOp sets keys, and restores their earlier values.
type configOp struct{ asking }

func (configOp) Check(s journal.Step) error {
	if !slices.Contains([]string{pmdMask, lcoreMask, socketMem}, s.Target) {
		return fmt.Errorf("other_config:%s: expected %s, %s or %s", s.Target, pmdMask, lcoreMask, socketMem)
	}
	for _, value := range []string{s.Before, s.After} {
		if !netpath.IsUnread(value) && !regexp.MustCompile(`^[0-9A-Fa-fx,]*$`).MatchString(value) {
			return fmt.Errorf("other_config:%s: %q: expected numbers", s.Target, value)
		}
	}
	return nil
}

func (o configOp) Read(ctx context.Context, s journal.Step) (string, error) {
	db, err := o.reader.database(ctx)
	if err != nil {
		return netpath.Unread(ctx, err)
	}
	return db.config[s.Target], nil
}

func (o configOp) Write(ctx context.Context, s journal.Step, value string) error {
	o.reader.forget()
	defer o.reader.forget()
	if netpath.IsUnread(value) {
		return errors.New("what it was is not known: Open vSwitch did not answer")
	}
	err := change(ctx, [][]string{append([]string{"--no-wait"}, setting(s.Target, value)...)})
	if value == "" && removed(err) {
		return nil
	}
	return err
}

// setting returns an ovs-vsctl(8) command. A value of several numbers needs quotes of its own.
func setting(key, value string) []string {
	if value == "" {
		return []string{"remove", "Open_vSwitch", ".", "other_config", key}
	}
	return []string{"set", "Open_vSwitch", ".", fmt.Sprintf("other_config:%s=%q", key, value)}
}

// Name says which setting it is.
func (configOp) Name(s journal.Step) string { return "Open vSwitch other_config:" + s.Target }

// Shell returns a command of ovs-vsctl(8).
func (configOp) Shell(s journal.Step) string {
	return vsctl + " --no-wait " + strings.Join(setting(s.Target, s.After), " ")
}
