package plan

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/host"
)

// Interrupts returns the interrupts that the CPUs of a lane handle, on a host as it is now: those of all its
// virtual functions, and those of as many queues of its device as it wants and no other lane has. An
// interrupt that the lane had stays on its CPU, unless a reloaded driver has given its number to something
// else. The rest is spread evenly over the CPUs, all interrupts of a queue on one. A lane without devices
// keeps what it has.
func Interrupts(h host.Host, l Lane, others []Lane) []Interrupt {
	if len(l.Devices) == 0 {
		return l.Interrupts
	}
	of := map[string]int{} // by queue
	queues, load := 0, map[int]int{}
	take := func(s source, cpu int) {
		if _, has := of[s.queue]; has || !s.function && queues >= l.Spec.Network.Queues {
			return
		}
		if of[s.queue] = cpu; !s.function {
			queues++
		}
		load[cpu]++
	}
	sources := l.sources(h, others)
	for _, s := range sources {
		for _, had := range l.Interrupts {
			if had.IRQ == s.irq && l.CPUs.Contains(had.CPU) {
				take(s, had.CPU)
			}
		}
	}
	var now []Interrupt
	for _, s := range sources {
		take(s, slices.MinFunc(l.CPUs.Slice(), func(a, b int) int { return load[a] - load[b] }))
		if cpu, has := of[s.queue]; has {
			now = append(now, Interrupt{IRQ: s.irq, CPU: cpu})
		}
	}
	return now
}

// source is an interrupt that a lane may have.
type source struct {
	irq      int
	queue    string // and its network card
	function bool   // of a virtual function of the lane
}

// sources returns the interrupts that a lane may have and no other lane has.
func (l Lane) sources(h host.Host, others []Lane) (all []source) {
	for _, i := range h.Interrupts {
		s, may := l.source(h, i)
		if may && !slices.ContainsFunc(others, func(o Lane) bool { return o.Name != l.Name && o.hasStill(h, i) }) {
			all = append(all, s)
		}
	}
	return all
}

// hasStill reports whether the lane may still have an interrupt that it had.
func (l Lane) hasStill(h host.Host, i host.Interrupt) bool {
	if !slices.ContainsFunc(l.Interrupts, func(had Interrupt) bool { return had.IRQ == i.IRQ }) {
		return false
	}
	_, may := l.source(h, i)
	return may
}

// QueuesOf returns how many queues of its device a lane has. known is false if the host shows none of the
// device's interrupts, or if the lane has virtual functions instead.
func QueuesOf(h host.Host, l Lane) (has int, known bool) {
	found := map[string]bool{}
	for _, d := range l.Devices {
		if _, known = Queues(h, d.Address); len(d.VFs) > 0 {
			return 0, false
		}
	}
	for _, i := range h.Interrupts {
		if s, _ := l.source(h, i); l.hasStill(h, i) {
			found[s.queue] = true
		}
	}
	return len(found), known
}

// source describes an interrupt as one of the lane: of one of its virtual functions, or of a queue of its
// device, and movable. It returns false for any other.
func (l Lane) source(h host.Host, i host.Interrupt) (source, bool) {
	if i.Device == nil || i.Managed != nil && *i.Managed {
		return source{}, false
	}
	if l.HasFunction(*i.Device) {
		return source{i.IRQ, fmt.Sprint("of interrupt ", i.IRQ), true}, true
	}
	queue := queueOf(h, i)
	return source{i.IRQ, *i.Device + " " + queue, false}, queue != "" && slices.ContainsFunc(l.Devices,
		func(d Device) bool { return d.Address == *i.Device && len(d.VFs) == 0 })
}

// WithDevices returns a placement with the addresses of virtual functions and the interrupts that the host
// has now. They change: a lane's own steps make functions; drivers request interrupts when a device is set
// up, and others when they are reloaded or the number of queues changes.
func WithDevices(h host.Host, p Placement) Placement {
	p.Lanes = slices.Clone(p.Lanes)
	for i, l := range p.Lanes {
		p.Lanes[i].Devices = slices.Clone(l.Devices)
		for j, d := range l.Devices {
			if len(d.VFs) == 0 {
				continue
			}
			d.Virtual = nil
			has := host.DeviceOf(h, d.Address).VFs
			for _, n := range d.VFs {
				if n < len(has) {
					d.Virtual = append(d.Virtual, has[n])
				}
			}
			p.Lanes[i].Devices[j] = d
		}
		p.Lanes[i].Interrupts = Interrupts(h, p.Lanes[i], p.Lanes)
	}
	return p
}

// Queues returns how many queues of a device, given by its PCI address, have a movable interrupt. known is
// false if the host shows none of its interrupts.
func Queues(h host.Host, device string) (queues int, known bool) {
	found := map[string]bool{"": true}
	for _, i := range h.Interrupts {
		if i.Device == nil || *i.Device != device {
			continue
		}
		if known = true; i.Managed == nil || !*i.Managed {
			found[queueOf(h, i)] = true
		}
	}
	return len(found) - 1, known
}

// queueOf returns the number of the queue of a network card that an interrupt serves, or "" if it serves the
// card's link or control. Drivers end the names of queue interrupts with the queue's number ("eth0-TxRx-3",
// "mlx5_comp3@pci:…"), the same for both directions ("virtio2-input.0", "virtio2-output.0"). Other names have
// no number ("eth0", even if that interface has been renamed, "virtio2-config", "i40e-0000:3b:00.0:misc"),
// except "mlx5_async0@pci:…" of mlx5 and "eth0-event-4" of vmxnet3. An interrupt without a name may serve a
// queue.
func queueOf(h host.Host, i host.Interrupt) string {
	if i.Name == nil {
		return fmt.Sprint("of interrupt ", i.IRQ)
	}
	name, _, _ := strings.Cut(*i.Name, "@")
	if h.FindDevice(name) >= 0 || !strings.ContainsAny(name, "-_.:") {
		return ""
	}
	kind := strings.TrimRight(name, "0123456789")
	if strings.HasSuffix(kind, "_async") || strings.HasSuffix(kind, "-event-") {
		return ""
	}
	return name[len(kind):]
}
