package stock

import (
	"fmt"
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
// other lane has. They go to the lane's CPUs in turn, those of one queue to one.
func (m *Machine) Interrupts(l plan.Lane) []plan.Interrupt {
	var irqs []plan.Interrupt
	cpus := l.CPUs.Slice()
	taken := func(irq int) bool {
		return slices.ContainsFunc(m.Lanes, func(o plan.Lane) bool {
			return slices.ContainsFunc(o.Interrupts, func(i plan.Interrupt) bool { return i.IRQ == irq })
		})
	}
	queues := map[string]int{} // the CPU of each
	for _, i := range m.Host.Interrupts {
		if i.Device == nil || known(i.Managed, false) || taken(i.IRQ) {
			continue
		}
		for _, d := range l.Devices {
			own := slices.Contains(d.Virtual, *i.Device)
			if !own && (d.Address != *i.Device || len(d.VFs) > 0) {
				continue
			}
			cpu := cpus[len(irqs)%len(cpus)]
			if !own {
				queue := m.queue(i)
				if _, has := queues[queue]; !has && queue != "" && len(queues) < l.Spec.Network.Queues {
					queues[queue] = cpus[len(queues)%len(cpus)]
				}
				of, has := queues[queue]
				if cpu = of; !has {
					continue
				}
			}
			irqs = append(irqs, plan.Interrupt{IRQ: i.IRQ, CPU: cpu})
		}
	}
	return irqs
}

// Queues is how many queues of a device have an interrupt that can be moved; known is false where the machine
// tells of none of its interrupts.
func (m *Machine) Queues(device int) (queues int, known bool) {
	found := map[string]bool{"": true}
	for _, i := range m.Host.Interrupts {
		if i.Device == nil || *i.Device != m.Host.PCIDevices[device].Address {
			continue
		}
		if known = true; i.Managed == nil || !*i.Managed {
			found[m.queue(i)] = true
		}
	}
	return len(found) - 1, known
}

// queue is the number of the queue of a network card that an interrupt is of, "" where it is of the card's
// link or control. Drivers number queues at the end of the name ("eth0-TxRx-3", "mlx5_comp3@pci:…"), alike
// for both directions ("virtio2-input.0", "virtio2-output.0"), and name the others otherwise ("eth0",
// "virtio2-config", "i40e-0000:3b:00.0:misc"). One without a name may be of a queue.
func (m *Machine) queue(i host.Interrupt) string {
	if i.Name == nil {
		return fmt.Sprint("of interrupt ", i.IRQ)
	}
	name, _, _ := strings.Cut(*i.Name, "@")
	if m.FindDevice(name) >= 0 {
		return ""
	}
	return name[len(strings.TrimRight(name, "0123456789")):]
}
