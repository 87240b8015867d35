package ovs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"isolane.dev/isolane/cores"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

// KindRxq sets the receive queues of a card that DPDK drives, and the CPUs of the threads that poll them
// (ovs-vswitchd.conf.db(5), options:n_rxq and other_config:pmd-rxq-affinity of Interface). The target is the
// card's PCI address. A value is "N" or "N QUEUE:CPU,...", "" for neither.
const KindRxq = "ovs-rxq"

// rxqStep returns the step for the card of a switch's lane.
func rxqStep(l plan.Lane) []journal.Step {
	n := l.Spec.Network.Queues
	if n == 0 || len(l.Devices) == 0 {
		return nil
	}
	value := strings.TrimSpace(fmt.Sprint(n, " ", cores.RxqAffinity(l)))
	return []journal.Step{{Kind: KindRxq, Target: l.Devices[0].Address, After: value}}
}

// card is an interface of type dpdk.
type card struct{ name, rxq, affinity string }

// rxqOp sets the queues, and restores their earlier values.
type rxqOp struct{ asking }

func (rxqOp) Check(s journal.Step) error {
	if !regexp.MustCompile(`^[0-9a-f:.]+$`).MatchString(s.Target) {
		return fmt.Errorf("%q: expected a PCI address", s.Target)
	}
	for _, value := range []string{s.Before, s.After} {
		if !netpath.IsUnread(value) && !regexp.MustCompile(`^[0-9]*( [0-9:,]+)?$`).MatchString(value) {
			return fmt.Errorf("receive queues of %s: %q: expected N, or N with QUEUE:CPU and commas", s.Target, value)
		}
	}
	return nil
}

func (o rxqOp) Read(ctx context.Context, s journal.Step) (string, error) {
	db, err := o.reader.database(ctx)
	if err != nil {
		return netpath.Unread(ctx, err)
	}
	c := db.cards[s.Target]
	if c.affinity == "" {
		return c.rxq, nil
	}
	return c.rxq + " " + c.affinity, nil
}

func (o rxqOp) Write(ctx context.Context, s journal.Step, value string) error {
	o.reader.forget()
	defer o.reader.forget()
	if netpath.IsUnread(value) {
		return errors.New("what they were is not known: Open vSwitch did not answer")
	}
	db, err := read(ctx)
	if value == s.Before && removed(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c, is := db.cards[s.Target]
	switch {
	case !is && value == s.Before: // its port was removed
		return nil
	case !is:
		return fmt.Errorf("spec.network.queues: Open vSwitch has no port with %s: expected %s add-port BRIDGE "+
			"PORT -- set Interface PORT type=dpdk options:dpdk-devargs=%[1]s", s.Target, vsctl)
	}
	commands := c.settings(value)
	commands[0] = append([]string{"--no-wait"}, commands[0]...)
	return change(ctx, commands)
}

// settings returns ovs-vsctl(8) commands.
func (c card) settings(value string) (commands [][]string) {
	rxq, affinity, _ := strings.Cut(value, " ")
	for _, o := range []struct{ column, key, value string }{
		{"options", "n_rxq", rxq}, {"other_config", "pmd-rxq-affinity", affinity}} {
		if o.value == "" {
			commands = append(commands, []string{"remove", "Interface", c.name, o.column, o.key})
			continue
		}
		commands = append(commands, []string{"set", "Interface", c.name,
			fmt.Sprintf("%s:%s=%q", o.column, o.key, o.value)})
	}
	return commands
}

// Name says which setting it is.
func (rxqOp) Name(s journal.Step) string { return "Open vSwitch receive queues of " + s.Target }

// Shell returns an ovs-vsctl(8) command for the port, whatever its name.
func (rxqOp) Shell(s journal.Step) string {
	var words []string
	for _, command := range (card{name: "PORT"}).settings(s.After) {
		words = append(words, strings.Join(command, " "))
	}
	return vsctl + " --no-wait " + strings.Join(words, " -- ") + " # the port with " + s.Target
}
