package systemd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
)

// KindIrqbalance sets what irqbalance leaves alone if systemd starts it: CPUs, followed by the numbers of
// interrupts, as in "2-3 24 25"; "" means only what its own configuration says. It is a drop-in below /run,
// so it holds for each start of irqbalance until the next boot.
const KindIrqbalance = "balancer"

// BalancerTarget is the only target of steps of kind balancer.
const BalancerTarget = "irqbalance.service"

type balancer struct{ root string }

func (b balancer) file() string {
	return filepath.Join(b.root, "run/systemd/system", BalancerTarget+".d", "50-isolane.conf")
}

func (balancer) Check(s journal.Step) error {
	if s.Target != BalancerTarget {
		return fmt.Errorf("%s: expected %s", s.Target, BalancerTarget)
	}
	for _, value := range []string{s.Before, s.After} {
		cpus, interrupts, _ := strings.Cut(value, " ")
		if _, err := cpuset.Parse(cpus); err != nil || strings.Trim(interrupts, "0123456789 ") != "" ||
			strings.Trim(cpus, "0123456789-,") != "" {
			return fmt.Errorf("%s: %q: expected CPUs and the numbers of interrupts", s.Target, value)
		}
	}
	return nil
}

const balancerMark = "# Written by isolane, which removes it with the last lane. Left alone: "

// dropIn returns a drop-in that adds to what irqbalance's own configuration bans (irqbalance(1)). It lifts
// systemd's limit of starts, because each change restarts irqbalance. It keeps irqbalance in the foreground,
// which versions before 1.9.3 leave by default: systemd would think that it has ended.
func dropIn(value string) string {
	cpus, interrupts, _ := strings.Cut(value, " ")
	banned := ""
	for _, irq := range strings.Fields(interrupts) {
		banned += " --banirq=" + irq
	}
	return balancerMark + value + "\n[Unit]\nStartLimitIntervalSec=0\n[Service]\n" +
		"Environment=ISOLANE_CPUS=" + cpus + "\nExecStart=\n" + // the audit looks for this
		"ExecStart=/bin/sh -c 'export IRQBALANCE_BANNED_CPULIST=" +
		"$${IRQBALANCE_BANNED_CPULIST:+$$IRQBALANCE_BANNED_CPULIST,}$$ISOLANE_CPUS; " +
		"exec /usr/sbin/irqbalance --foreground" + banned + " $$IRQBALANCE_ARGS'\n"
}

func (b balancer) Read(context.Context, journal.Step) (string, error) {
	data, err := os.ReadFile(b.file())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	line, _, _ := strings.Cut(string(data), "\n")
	value, ok := strings.CutPrefix(line, balancerMark)
	if err == nil && (!ok || dropIn(value) != string(data)) {
		value = "another text"
	}
	return value, err
}

// Write does not wait for irqbalance to start: at boot irqbalance itself may wait for the lanes.
func (b balancer) Write(ctx context.Context, _ journal.Step, value string) error {
	err := os.MkdirAll(path.Dir(b.file()), 0o755)
	switch {
	case err != nil:
		return err
	case value != "":
		err = os.WriteFile(b.file(), []byte(dropIn(value)), 0o644)
	default:
		err = os.Remove(b.file())
		_ = os.Remove(path.Dir(b.file())) // unless something else is in it
	}
	if err != nil || b.root != "/" {
		return err
	}
	if _, err = systemctl(ctx, "daemon-reload"); err == nil {
		_, _ = systemctl(ctx, "reset-failed", BalancerTarget) // its count of starts; fails if it is not loaded
		_, err = systemctl(ctx, "--no-block", "try-restart", BalancerTarget)
	}
	return err
}

// Name says which setting the step changes.
func (balancer) Name(journal.Step) string { return "CPUs and interrupts that irqbalance leaves alone" }
