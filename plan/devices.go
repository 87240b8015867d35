package plan

import (
	"slices"
	"strings"

	"isolane.dev/isolane/host"
)

func (m *machine) findDevice(name string) int {
	return slices.IndexFunc(m.h.PCIDevices, func(d host.PCIDevice) bool {
		return d.Address == name || slices.Contains(d.Netdevs, name)
	})
}

// deviceNode is the node of a device; none where it is not known.
func (m *machine) deviceNode(d int) nodeSet {
	id := known(m.h.PCIDevices[d].NUMANode, -2) // no node has this number
	at := slices.IndexFunc(m.nodes, func(n node) bool { return n.id == id })
	if at < 0 {
		return 0
	}
	return 1 << at
}

// freeVFs is how many virtual functions of a device no lane other than the one of that name has.
func (m *machine) freeVFs(d int, name string) int {
	dev := m.h.PCIDevices[d]
	if dev.SRIOV == nil {
		return 0
	}
	n := dev.SRIOV.TotalVFs
	for _, l := range m.lanes {
		for _, has := range l.Devices {
			if has.Address == dev.Address && l.Name != name {
				n -= len(has.VFs)
			}
		}
	}
	return n
}

// functions are what a lane gets of a device, with the first virtual functions that no lane has.
func (m *machine) functions(device, vfs int) Device {
	dev := m.h.PCIDevices[device]
	d := Device{Address: dev.Address}
	var taken []int
	for _, l := range m.lanes {
		for _, has := range l.Devices {
			if has.Address == dev.Address {
				taken = append(taken, has.VFs...)
			}
		}
	}
	for i := 0; len(d.VFs) < vfs; i++ {
		if slices.Contains(taken, i) {
			continue
		}
		d.VFs = append(d.VFs, i)
		if i < len(dev.VFs) {
			d.Virtual = append(d.Virtual, dev.VFs[i])
		}
	}
	return d
}

// interrupts are those of the lane's virtual functions, and as many queues of its device as it wants and no
// other lane has. They go to the lane's CPUs in turn.
func (m *machine) interrupts(l Lane) []Interrupt {
	var irqs []Interrupt
	cpus := l.CPUs.Slice()
	taken := func(irq int) bool {
		return slices.ContainsFunc(m.lanes, func(o Lane) bool {
			return slices.ContainsFunc(o.Interrupts, func(i Interrupt) bool { return i.IRQ == irq })
		})
	}
	queues := l.Spec.Network.Queues
	for _, i := range m.h.Interrupts {
		if i.Device == nil || known(i.Managed, false) || taken(i.IRQ) {
			continue
		}
		for _, d := range l.Devices {
			own := slices.Contains(d.Virtual, *i.Device)
			if !own && (d.Address != *i.Device || len(d.VFs) > 0 || queues == 0 || !m.isQueue(i)) {
				continue
			}
			if !own {
				queues--
			}
			irqs = append(irqs, Interrupt{IRQ: i.IRQ, CPU: cpus[len(irqs)%len(cpus)]})
		}
	}
	return irqs
}

// isQueue says whether an interrupt is one of a network card's queues, and not of its link or control:
// drivers number queues at the end of the name ("eth0-TxRx-3", "virtio2-input.0",
// "mlx5_comp3@pci:0000:3b:00.0"), and name the others otherwise ("eth0", "virtio2-config",
// "i40e-0000:3b:00.0:misc"). One without a name may be.
func (m *machine) isQueue(i host.Interrupt) bool {
	if i.Name == nil {
		return true
	}
	name, _, _ := strings.Cut(*i.Name, "@")
	return m.findDevice(name) < 0 && name != "" && name[len(name)-1] >= '0' && name[len(name)-1] <= '9'
}
