package sriov

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

const (
	drivers = "/sys/bus/pci/drivers"
	vfio    = "vfio-pci"
	mbit    = 1e6
)

// declaredOwn says what a lane cannot declare if its workload drives the function itself.
func declaredOwn(n lane.Network) error {
	switch {
	case len(n.Gateways) > 0:
		return errors.New("spec.network.gateways: with driver vfio-pci the workload makes its own routes: " +
			"expected none")
	case n.MTU > 0:
		return errors.New("spec.network.mtu: with driver vfio-pci the workload sets its own: expected none")
	case n.Rate%mbit > 0:
		return fmt.Errorf("spec.network.rate: %s: with driver vfio-pci the card limits it: expected whole Mbit",
			n.Rate)
	}
	return nil
}

// possibleOwn says why workloads cannot drive functions of a card, on the host that root shows. A function
// that does not exist yet is checked when it is made.
func possibleOwn(root fs.FS, name string, functions []string) error {
	if _, err := fs.Stat(root, drivers[1:]+"/"+vfio); err != nil {
		return errors.New("spec.network.driver: the kernel has no driver vfio-pci: modprobe vfio-pci")
	}
	for _, address := range functions {
		group, others := iommuGroup(root, address)
		_, err := fs.Stat(root, devices[1:]+"/"+address+"/physfn")
		switch {
		case group == "":
			return fmt.Errorf("spec.network.driver: no IOMMU keeps %s of %s to the lane's memory: expected one, "+
				"switched on in the firmware and by intel_iommu=on, or amd_iommu=on, on the kernel's command line",
				address, name)
		case err == nil && len(others) > 0:
			return alone(address, group, others)
		}
	}
	return nil
}

// iommuGroup returns the IOMMU group of a device, and the other devices in it that have a driver of the host.
// An IOMMU cannot tell the devices of a group apart, so nobody may use one in user space beside such others.
// The group is "" if no IOMMU guards the host's memory from the device (Documentation/driver-api/vfio.rst).
func iommuGroup(root fs.FS, address string) (group string, others []string) {
	link, err := fs.ReadLink(root, devices[1:]+"/"+address+"/iommu_group")
	if err != nil {
		return "", nil
	}
	group = path.Base(link)
	all, _ := fs.ReadDir(root, "sys/kernel/iommu_groups/"+group+"/devices")
	for _, d := range all {
		driver, derr := fs.ReadLink(root, devices[1:]+"/"+d.Name()+"/driver")
		switch name := path.Base(driver); {
		case d.Name() == address, derr != nil, name == vfio, name == "pci-stub", name == "pcieport":
		default:
			others = append(others, d.Name()+" ("+name+")")
		}
	}
	return group, others
}

func alone(address, group string, others []string) error {
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("spec.network.driver: %s is in IOMMU group %s with %s, which the host uses: expected a "+
		"function that is alone, in a slot whose bridges have ACS", address, group, strings.Join(others, ", "))
}

// kindDriver sets the driver of a virtual function. The target is as in kindFunction, the value a binding.
const kindDriver = "vf-driver"

// binding has the driver of a PCI device, and the only driver that it may have, by name
// (Documentation/ABI/testing/sysfs-bus-pci, driver_override); "" is none.
type binding struct{ driver, override string }

func (b binding) String() string { return b.driver + "/" + b.override }

func parseBinding(value string) (b binding, err error) {
	if !regexp.MustCompile(`^[\w-]*/[\w-]*$`).MatchString(value) {
		return b, fmt.Errorf("%q: expected DRIVER/OVERRIDE", value)
	}
	b.driver, b.override, _ = strings.Cut(value, "/")
	return b, nil
}

// bound finds the function of a step, and its driver. It fails with fs.ErrNotExist if there is no such
// function.
func bound(s journal.Step) (address string, b binding, err error) {
	t, err := parseTarget(s.Target)
	if err != nil {
		return "", b, err
	}
	link, err := os.Readlink(card{address: t.card}.file(fmt.Sprint("virtfn", t.number)))
	if err != nil {
		return "", b, err
	}
	address = path.Base(link)
	if driver, derr := os.Readlink(path.Join(devices, address, "driver")); derr == nil {
		b.driver = path.Base(driver)
	}
	text, err := os.ReadFile(path.Join(devices, address, "driver_override"))
	if b.override = strings.TrimSpace(string(text)); b.override == "(null)" {
		b.override = ""
	}
	return address, b, err
}

type driverOp struct{}

func (driverOp) Check(s journal.Step) error {
	_, err := parseTarget(s.Target)
	for _, value := range []string{cmp.Or(s.Before, s.After), s.After} {
		_, verr := parseBinding(value)
		err = errors.Join(err, verr)
	}
	return err
}

func (driverOp) Read(_ context.Context, s journal.Step) (string, error) {
	_, b, err := bound(s)
	return b.String(), err
}

// MayOverwrite reports whether the function has no driver: a crash between one driver and the next may leave
// it so.
func (driverOp) MayOverwrite(_ journal.Step, now string) bool { return strings.HasPrefix(now, "/") }

// Write takes the function from its driver and gives it to another one.
func (o driverOp) Write(_ context.Context, s journal.Step, value string) error {
	want, err := parseBinding(value)
	if err != nil {
		return err
	}
	address, now, err := bound(s)
	if err != nil {
		return err
	}
	if want.driver == vfio {
		group, others := iommuGroup(os.DirFS("/"), address)
		err = alone(address, group, others)
	} else {
		err = o.Held(s)
	}
	file := func(name string) string { return path.Join(devices, address, name) }
	if err == nil && now.driver != "" && now.driver != want.driver {
		err = os.WriteFile(file("driver/unbind"), []byte(address), 0)
	}
	if err == nil && now.override != want.override {
		err = os.WriteFile(file("driver_override"), []byte(want.override+"\n"), 0)
	}
	if err == nil && want.driver != "" && now.driver != want.driver {
		err = os.WriteFile(path.Join(drivers, want.driver, "bind"), []byte(address), 0)
	}
	return err
}

// Held returns an error while a process uses the function. Then it cannot be taken back: the kernel would
// wait.
func (driverOp) Held(s journal.Step) error {
	address, now, err := bound(s)
	if err != nil || now.driver != vfio {
		return nil // there is nothing to wait for
	}
	group, _ := iommuGroup(os.DirFS("/"), address)
	nodes := []string{"/dev/vfio/" + group}
	found, err := filepath.Glob(path.Join(devices, address, "vfio-dev/*")) // by iommufd(4)
	for _, dir := range found {
		nodes = append(nodes, "/dev/vfio/devices/"+path.Base(dir))
	}
	open, gerr := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range open {
		if file, lerr := os.Readlink(fd); lerr == nil && slices.Contains(nodes, file) {
			return fmt.Errorf("process %s has %s open, by which it drives %s: end it first",
				strings.Split(fd, "/")[2], file, address)
		}
	}
	return errors.Join(err, gerr)
}

// Name says which driver it is.
func (driverOp) Name(s journal.Step) string {
	t, _ := parseTarget(s.Target)
	return fmt.Sprintf("driver of virtual function %d of %s", t.number, t.card)
}

// Describe says which driver comes or goes.
func (o driverOp) Describe(s journal.Step) (name, from, to string) {
	text := func(value string) string {
		b, err := parseBinding(value)
		if err != nil {
			return value
		}
		text := cmp.Or(b.driver, "none")
		if b.override != "" {
			text += ", driver_override " + b.override
		}
		return text
	}
	return o.Name(s), text(s.Before), text(s.After)
}

// DescribeDrift says which driver the function has instead.
func (o driverOp) DescribeDrift(s journal.Step) (expected, found string) {
	_, found, expected = o.Describe(s)
	return expected, found
}

// Shell returns commands that do what Write does.
func (driverOp) Shell(s journal.Step) string {
	t, err := parseTarget(s.Target)
	want, werr := parseBinding(s.After)
	if err != nil || werr != nil {
		return ""
	}
	dir := card{address: t.card}.file(fmt.Sprint("virtfn", t.number))
	address := "$(basename $(readlink " + dir + "))"
	return fmt.Sprintf("echo %s > %s/driver/unbind; echo '%s' > %[2]s/driver_override; echo %[1]s > %s/%s/bind",
		address, dir, want.override, drivers, want.driver)
}

// Traffic returns what the card has counted for a lane's functions; nil if their driver counts nothing.
func (Path) Traffic(_ context.Context, l netpath.Lane) (*netpath.Traffic, error) {
	var sum netpath.Traffic
	for _, number := range l.Functions.Numbers {
		a, err := find(target{l.Functions.Card, number, l.Netns()}.String())
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return nil, err
		}
		a.h.Close()
		for _, vf := range a.pf.Attrs().Vfs {
			if vf.ID == a.number {
				sum.Received += vf.RxPackets
				sum.Sent += vf.TxPackets
				sum.Dropped += vf.RxDropped + vf.TxDropped
			}
		}
	}
	if sum == (netpath.Traffic{}) {
		return nil, nil
	}
	return &sum, nil
}
