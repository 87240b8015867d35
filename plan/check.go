package plan

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/host"
)

// Check returns an error unless a placement is for this machine, and still possible on it.
func (p Placement) Check(h host.Host) error {
	if len(p.Lanes) == 0 {
		return nil
	}
	here := MachineOf(h)
	if !p.Host.same(here) || p.Host.CPUs != here.CPUs {
		return &Mismatch{Reason: fmt.Sprintf("the placement is of %s, this machine is %s", p.Host, here)}
	}
	usable := h.Usable()
	var lost []string
	reason := ""
	owner := map[int]int{}
	for i, l := range p.Lanes {
		if gone := l.Owned().Difference(usable); !gone.IsEmpty() {
			lost = append(lost, l.Name)
			reason = fmt.Sprintf("lanes[%d]: %s has CPUs %s, which are offline or no longer allowed", i, l.Name, gone)
		}
		for id := range l.Owned().All() {
			j, taken := owner[id]
			if o := p.Lanes[j]; taken && (l.Spec.CPUs.Share <= 1 || o.Spec.CPUs.Share <= 1) {
				return &Mismatch{Reason: fmt.Sprintf("lanes[%d] and lanes[%d]: %s and %s both have CPU %d",
					j, i, o.Name, l.Name, id)}
			}
			owner[id] = i
		}
		for _, d := range l.Devices {
			if !slices.ContainsFunc(h.PCIDevices, func(dev host.PCIDevice) bool { return dev.Address == d.Address }) {
				return &Mismatch{Reason: fmt.Sprintf("lanes[%d]: %s has device %s, which this machine does not have",
					i, l.Name, d.Address)}
			}
		}
	}
	if len(lost) > 0 {
		return &Mismatch{Reason: reason, Lost: lost}
	}
	return nil
}

// Mismatch says why a placement is not for a machine.
type Mismatch struct {
	Reason string
	Lost   []string // lanes that have lost CPUs; none: it is another machine
}

// Error returns the reason.
func (m *Mismatch) Error() string { return m.Reason }

// Hint says what to do about lanes that have lost CPUs.
func (m *Mismatch) Hint() string {
	if len(m.Lost) == 0 {
		return ""
	}
	return "bring the CPUs back online, or isolane release the lanes that have lost them; plan --repack takes " +
		"those of a file to others: " + strings.Join(m.Lost, ", ")
}

// MachineOf returns what identifies the machine of a host.
func MachineOf(h host.Host) Machine {
	return Machine{h.Hostname, h.Kernel.MachineID, h.Kernel.BootID, h.Possible()}
}

// same reports whether both are one machine: one boot of a kernel, in which a container has a name of its
// own, or one name, unless their IDs differ.
func (m Machine) same(here Machine) bool {
	if here.BootID != "" && m.BootID == here.BootID {
		return true
	}
	known := m.MachineID != "" && here.MachineID != ""
	return m.Hostname == here.Hostname && (!known || m.MachineID == here.MachineID)
}

func (m Machine) String() string {
	s := fmt.Sprintf("%q with CPUs %s", m.Hostname, m.CPUs)
	if m.MachineID != "" {
		s += " and machine ID " + m.MachineID
	}
	return s
}
