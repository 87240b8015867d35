package plan_test

import (
	"fmt"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// card is a host with interrupts of a card, numbered from first; "" is one without a name.
func card(address string, first int, names ...string) (h host.Host) {
	h.PCIDevices = []host.PCIDevice{{Address: address, Netdevs: []string{"eth1"}}}
	for i, name := range names {
		irq := host.Interrupt{IRQ: first + i, Device: new(address)}
		if name != "" {
			irq.Name = new(name)
		}
		h.Interrupts = append(h.Interrupts, irq)
	}
	return h
}

const address = "0000:31:00.0"

func queues(name string, n int, had ...plan.Interrupt) plan.Lane {
	return plan.Lane{Name: name, CPUs: cpuset.MustParse("2-3"), Devices: []plan.Device{{Address: address}},
		Interrupts: had, Spec: lane.Spec{Network: lane.Network{Queues: n}}}
}

// The interrupts of a queue go to one CPU together, those of a card's link and control to none of the lane's.
func TestInterrupts(t *testing.T) {
	virtio := card(address, 50, "virtio5-config", "virtio5-input.0", "virtio5-output.0", "virtio5-input.1", "virtio5-output.1")
	igb := card(address, 60, "eth1", "eth1-rx-0", "eth1-rx-1", "eth1-tx-0", "eth1-tx-1", "eth1-TxRx-2")
	mlx5 := card(address, 70, "mlx5_async0@pci:0000:31:00.0", "mlx5_comp0@pci:0000:31:00.0", "mlx5_comp1@pci:0000:31:00.0")
	vmxnet3 := card(address, 80, "eth1-rxtx-0", "eth1-rxtx-1", "eth1-event-2")
	renamed := card(address, 60, "eth7", "eth7-TxRx-0")
	for _, c := range []struct {
		host        host.Host
		has, queues int
		expected    string
	}{
		{virtio, 2, 1, "[{51 2} {52 2}]"},
		{virtio, 2, 2, "[{51 2} {52 2} {53 3} {54 3}]"},
		{igb, 3, 2, "[{61 2} {62 3} {63 2} {64 3}]"},
		{igb, 3, 3, "[{61 2} {62 3} {63 2} {64 3} {65 2}]"},
		{renamed, 1, 2, "[{61 2}]"},
		{mlx5, 2, 1, "[{71 2}]"},
		{vmxnet3, 2, 3, "[{80 2} {81 3}]"},
	} {
		if has, known := plan.Queues(c.host, address); has != c.has || !known {
			t.Errorf("%s: %d queues, %v; expected %d", *c.host.Interrupts[0].Name, has, known, c.has)
		}
		if got := fmt.Sprint(plan.Interrupts(c.host, queues("a", c.queues), nil)); got != c.expected {
			t.Errorf("%s, %d queues: got %s, want %s", *c.host.Interrupts[0].Name, c.queues, got, c.expected)
		}
	}
}

// A lane keeps the queues that it has, and gets others for those that have gone or whose number is another's by
// now; none that another lane still has.
func TestInterruptsThatCame(t *testing.T) {
	names := []string{"eth1", "eth1-TxRx-0", "eth1-TxRx-1", "eth1-TxRx-2", "eth1-TxRx-3"}
	had := []plan.Interrupt{{IRQ: 32, CPU: 3}, {IRQ: 33, CPU: 2}} // of eth1-TxRx-1 and -2
	for name, c := range map[string]struct {
		host     host.Host
		others   []plan.Lane
		expected string
		has      int
	}{
		"same":                 {card(address, 30, names...), nil, "[{32 3} {33 2}]", 2},
		"other numbers":        {card(address, 40, names...), nil, "[{41 2} {42 3}]", 2},
		"one is of the link":   {card(address, 32, names...), nil, "[{33 2} {34 3}]", 2},
		"one has gone":         {card(address, 29, names[:4]...), nil, "[{30 2} {32 3}]", 2},
		"one queue":            {card(address, 30, names[:2]...), nil, "[{31 2}]", 1},
		"of another card":      {card("0000:19:00.0", 30, names...), nil, "[]", 0},
		"not named yet":        {card(address, 31, "", "", ""), nil, "[{32 3} {33 2}]", 2},
		"beside another":       {card(address, 40, names...), []plan.Lane{queues("b", 1, plan.Interrupt{IRQ: 41, CPU: 5})}, "[{42 2} {43 3}]", 2},
		"beside one that lost": {card(address, 41, names...), []plan.Lane{queues("b", 1, plan.Interrupt{IRQ: 41, CPU: 5})}, "[{42 2} {43 3}]", 2},
	} {
		l := queues("a", 2, had...)
		l.Interrupts = plan.Interrupts(c.host, l, append(c.others, l))
		if got := fmt.Sprint(l.Interrupts); got != c.expected {
			t.Errorf("%s: got %s, want %s", name, got, c.expected)
		}
		if has, _ := plan.QueuesOf(c.host, l); has != c.has {
			t.Errorf("%s: has %d queues, want %d", name, has, c.has)
		}
	}
}
