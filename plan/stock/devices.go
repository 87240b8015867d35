package stock

import (
	"slices"
	"strings"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
)

// FindDevice is the index of a PCI device by its address or one of its interfaces; -1: there is none.
func (m *Machine) FindDevice(name string) int {
	return slices.IndexFunc(m.Host.PCIDevices, func(d host.PCIDevice) bool {
		return d.Address == name || slices.Contains(d.Netdevs, name)
	})
}

// DeviceNode is the node of a device; none where it is not known.
func (m *Machine) DeviceNode(d int) NodeSet {
	id := known(m.Host.PCIDevices[d].NUMANode, -2) // no node has this number
	at := slices.IndexFunc(m.Nodes, func(n Node) bool { return n.ID == id })
	if at < 0 {
		return 0
	}
	return 1 << at
}

// FreeVFs is how many virtual functions of a device no lane other than the one of that name has.
func (m *Machine) FreeVFs(d int, name string) int {
	return len(m.freeVFs(m.Host.PCIDevices[d], name))
}

func (m *Machine) freeVFs(dev host.PCIDevice, name string) []int {
	return slices.DeleteFunc(m.Host.FreeFunctions(dev), func(n int) bool {
		return slices.ContainsFunc(m.Lanes, func(l plan.Lane) bool {
			return l.Name != name && slices.ContainsFunc(l.Devices, func(has plan.Device) bool {
				return has.Address == dev.Address && slices.Contains(has.VFs, n)
			})
		})
	})
}

// Functions are what a lane gets of a device, with the first virtual functions that no lane has.
func (m *Machine) Functions(device, vfs int) plan.Device {
	dev := m.Host.PCIDevices[device]
	d := plan.Device{Address: dev.Address}
	if vfs == 0 {
		return d
	}
	d.VFs = m.freeVFs(dev, "")[:vfs]
	for _, n := range d.VFs {
		if n < len(dev.VFs) {
			d.Virtual = append(d.Virtual, dev.VFs[n])
		}
	}
	return d
}

// Interrupts are those of the lane's virtual functions, and as many queues of its device as it wants and no
// other lane has. They go to the lane's CPUs in turn.
func (m *Machine) Interrupts(l plan.Lane) []plan.Interrupt {
	var irqs []plan.Interrupt
	cpus := l.CPUs.Slice()
	taken := func(irq int) bool {
		return slices.ContainsFunc(m.Lanes, func(o plan.Lane) bool {
			return slices.ContainsFunc(o.Interrupts, func(i plan.Interrupt) bool { return i.IRQ == irq })
		})
	}
	queues := l.Spec.Network.Queues
	for _, i := range m.Host.Interrupts {
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
			irqs = append(irqs, plan.Interrupt{IRQ: i.IRQ, CPU: cpus[len(irqs)%len(cpus)]})
		}
	}
	return irqs
}

// Queues is how many queues of a device have an interrupt that can be moved; known is false where the machine
// tells of none of its interrupts.
func (m *Machine) Queues(device int) (queues int, known bool) {
	for _, i := range m.Host.Interrupts {
		if i.Device == nil || *i.Device != m.Host.PCIDevices[device].Address {
			continue
		}
		if known = true; (i.Managed == nil || !*i.Managed) && m.isQueue(i) {
			queues++
		}
	}
	return queues, known
}

// isQueue says whether an interrupt is one of a network card's queues, and not of its link or control:
// drivers number queues at the end of the name ("eth0-TxRx-3", "virtio2-input.0",
// "mlx5_comp3@pci:0000:3b:00.0"), and name the others otherwise ("eth0", "virtio2-config",
// "i40e-0000:3b:00.0:misc"). One without a name may be.
func (m *Machine) isQueue(i host.Interrupt) bool {
	if i.Name == nil {
		return true
	}
	name, _, _ := strings.Cut(*i.Name, "@")
	return m.FindDevice(name) < 0 && name != "" && name[len(name)-1] >= '0' && name[len(name)-1] <= '9'
}
