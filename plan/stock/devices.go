package stock

import (
	"slices"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
)

// DeviceNode returns the node of a device; none if it is not known.
func (m *Machine) DeviceNode(d int) NodeSet {
	return m.NodeOfID(known(m.Host.PCIDevices[d].NUMANode, -2)) // no node has this number
}

// FreeVFs returns how many virtual functions of a device belong to no lane other than the one of that name.
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

// Functions returns what a lane gets of a device: the first virtual functions that no lane has.
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

// Interrupts returns the interrupts that a lane's CPUs handle, beside those of the lanes that are there.
func (m *Machine) Interrupts(l plan.Lane) []plan.Interrupt {
	return plan.Interrupts(m.Host, l, m.Lanes)
}

// Queues returns how many queues of a device have a movable interrupt. known is false if the machine shows
// none of its interrupts.
func (m *Machine) Queues(device int) (queues int, known bool) {
	return plan.Queues(m.Host, m.Host.PCIDevices[device].Address)
}
