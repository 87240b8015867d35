// Package sriov is the path on which a lane has a virtual function of a card for itself. The card's own
// switch passes it the frames with its MAC address and VLAN tag, and its interrupts go to the lane's CPUs.
// The lane gets the function's network device, or for a virtual machine or a user-space program the function
// itself.
package sriov

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/change/netdev/queues"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

// Path is the path "sriov".
type Path struct{}

// Name returns "sriov".
func (Path) Name() string { return "sriov" }

// About describes the path.
func (Path) About() string {
	return "one virtual function of a card for the application and one for the client, free ones that are " +
		"there; frames go from one to the other by the card's own switch"
}

// WireGRO returns true: frames are joined, as the driver does.
func (Path) WireGRO() bool { return true }

// Functions returns how many virtual functions a lane has.
func (Path) Functions(n lane.Network) int { return max(1, n.VFs) }

// Polled marks that frames keep the number of their receive queue.
func (Path) Polled() {}

// Policed marks that the card limits lanes to their rate.
func (Path) Policed() {}

// Declared says what of a declaration is impossible.
func (Path) Declared(n lane.Network) error {
	switch {
	case n.Device == "":
		return errors.New("spec.network.device: path sriov needs one, the card")
	case n.VLAN.Inner > 0 && n.Driver != "":
		return fmt.Errorf("spec.network.vlan.inner: with driver %s no device of the lane puts it on: expected none",
			n.Driver)
	case n.VLAN.Inner > 0 && n.VFs > 1:
		return fmt.Errorf("spec.network.vlan.inner: it is that of one device, and the lane has %d virtual "+
			"functions: expected none, or vfs 1", n.VFs)
	case n.VFs > 1 && n.HasTap():
		return fmt.Errorf("spec.network.vfs: %d: with driver tap a lane has one virtual function: expected 1",
			n.VFs)
	case n.VFs > 1 && n.Rate > 0:
		return fmt.Errorf("spec.network.rate: it is that of one device, and the lane has %d virtual functions: "+
			"expected none, or vfs 1", n.VFs)
	case n.VFs > 1 && n.Queues > 0:
		return fmt.Errorf("spec.network.queues: they are those of one device, and the lane has %d virtual "+
			"functions: expected none, or vfs 1", n.VFs)
	case n.Queues > 0 && n.Driver == lane.VFIO:
		return errors.New("spec.network.queues: with driver vfio-pci the workload says how many it has: expected " +
			"none")
	}
	if err := declaredOwn(n); n.Driver == lane.VFIO && err != nil {
		return err
	}
	return netpath.AnySource(n)
}

// Possible says why a lane cannot have the path on this host as it is. The planner says whether a function is
// free.
func (Path) Possible(l netpath.Lane) error {
	c, err := cardOf(l.Device)
	if err != nil {
		return fmt.Errorf("spec.network.device: %s is no network card: expected the physical function of one, or "+
			"path bridge: %w", l.Device, err)
	}
	l.Device = c.device
	_, err = l.CheckedUplink()
	total, terr := c.number("sriov_totalvfs")
	num, nerr := c.number("sriov_numvfs")
	switch {
	case err != nil:
		return err
	case terr != nil || nerr != nil || total == 0:
		return fmt.Errorf("spec.network.device: %s has no virtual functions (%s): expected a card with SR-IOV, "+
			"switched on in the firmware, or path bridge", l.Device, c.file("sriov_totalvfs"))
	}
	if err = possibleInner(os.DirFS("/"), l.VLAN); err != nil {
		return err
	}
	if l.Driver == lane.VFIO {
		if err = possibleOwn(os.DirFS("/"), l.Device, append(c.functions(), c.address)); err != nil {
			return err
		}
	}
	if err = c.possibleQueues(l); err != nil {
		return err
	}
	if num > 0 {
		return c.possibleDriver(l)
	}
	return c.possiblePool(l)
}

// possibleDriver says that none of the existing virtual functions has a driver, and which module has it.
func (c card) possibleDriver(l netpath.Lane) error {
	for _, vf := range c.functions() {
		if _, err := os.Readlink(path.Join(devices, vf, "driver")); err == nil {
			return nil
		}
	}
	if module := c.missingDriver(); module != "" {
		return fmt.Errorf("spec.network.device: virtual functions of %s have no driver: modprobe %s", l.Device,
			module)
	}
	return nil
}

// possibleInner says why the machine that root shows cannot have the device for a lane's inner tag.
func possibleInner(root fs.FS, v lane.VLAN) error {
	if v.Inner == 0 {
		return nil
	}
	if err := netpath.LacksTags(root); err != nil {
		return fmt.Errorf("spec.network.vlan.inner: %w", err)
	}
	return nil
}

// possiblePool says why a card without virtual functions cannot get any. Its link may go down, and with that
// what the host reaches through it, also through a device on it, and whatever the lane's tag.
func (c card) possiblePool(l netpath.Lane) error {
	l.Uplink = l.Device
	u, err := l.FindUplink()
	if err != nil {
		return err
	}
	above, err := u.Above()
	if err != nil {
		return err
	}
	for _, d := range append([]netpath.Uplink{u}, above...) {
		if d.Default && !l.TakeFromHost {
			return fmt.Errorf("spec.network.device: %s carries the host's route %q of %s and has no virtual "+
				"functions yet; its link may go down while it gets them: make them first (echo N > %s), or "+
				"say spec.network.takeFromHost: true", l.Device, d.Route, d.Name, c.file("sriov_numvfs"))
		}
	}
	if auto, aerr := c.number("sriov_drivers_autoprobe"); aerr == nil && auto == 0 {
		return fmt.Errorf("spec.network.device: virtual functions of %s get no driver: echo 1 > %s", l.Device,
			c.file("sriov_drivers_autoprobe"))
	}
	if module := c.missingDriver(); module != "" {
		return fmt.Errorf("spec.network.device: virtual functions of %s would have no driver: modprobe %s",
			l.Device, module)
	}
	return nil
}

// possibleQueues says why the lane's function cannot have its queues. All functions of a card have the same
// driver, so it asks the first one that is on the host. If lanes have all, a function that has the queues
// already may keep them.
func (c card) possibleQueues(l netpath.Lane) error {
	if l.Queues == 0 {
		return nil
	}
	all := c.functions()
	vectors, _ := c.number(totalVectors)
	if vectors > 0 && vectorsFor(l.Queues) > vectors {
		return fmt.Errorf("spec.network.queues: %d: they need %d interrupts, and all virtual functions of %s "+
			"together can have %d", l.Queues, vectorsFor(l.Queues), l.Device, vectors)
	}
	for _, address := range all {
		device, err := netdev.OfPCI(address)
		most := 0
		if err == nil && device != "" {
			most, err = queues.Most("", device)
		}
		switch {
		case err != nil:
			return fmt.Errorf("spec.network.queues: %s: %w", address, err)
		case device == "":
			continue
		case most == 0:
			return fmt.Errorf("spec.network.queues: the driver of %s, a virtual function of %s, sets no number of "+
				"queues: expected none", device, l.Device)
		case l.Queues > most && vectors == 0: // else it gets more with more interrupts
			return fmt.Errorf("spec.network.queues: %d: %s, a virtual function of %s, can have %d", l.Queues, device,
				l.Device, most)
		}
		return nil
	}
	if len(all) > 0 {
		return nil
	}
	return fmt.Errorf("spec.network.queues: %s has no virtual functions yet, whose driver could be asked: "+
		"expected some (echo N > %s), or no queues", l.Device, c.file("sriov_numvfs"))
}

// missingDriver returns the module with the driver of virtual functions if nobody would load it; "" if there
// is a driver, or udev, which loads it, or if it is not known.
func (c card) missingDriver() string {
	if _, err := os.Stat("/run/udev/control"); err == nil {
		return ""
	}
	vendor, _ := os.ReadFile(c.file("vendor"))
	device, _ := os.ReadFile(c.file("sriov_vf_device")) // without 0x
	release := unix.Utsname{}
	if unix.Uname(&release) != nil {
		return ""
	}
	text, _ := os.ReadFile(path.Join("/lib/modules", unix.ByteSliceToString(release.Release[:]),
		"modules.alias"))
	id := func(number []byte) string {
		return fmt.Sprintf("%08s", strings.ToUpper(strings.TrimPrefix(strings.TrimSpace(string(number)), "0x")))
	}
	_, rest, found := strings.Cut(string(text), "\nalias pci:v"+id(vendor)+"d"+id(device)+"sv*")
	line, _, _ := strings.Cut(rest, "\n")
	_, module, _ := strings.Cut(line, " ")
	if _, err := os.Stat("/sys/bus/pci/drivers/" + module); err == nil || !found {
		return ""
	}
	return module
}

// Steps returns what makes the path of these lanes: the functions of each card, and the device of each lane.
func (Path) Steps(lanes []netpath.Lane) ([]journal.Step, error) {
	var steps []journal.Step
	pools := map[string]int{}
	for _, l := range lanes {
		if l.Functions.Card == "" {
			return nil, fmt.Errorf("lane %s has path sriov and no virtual function", l.Name)
		}
		pools[l.Functions.Card] = max(pools[l.Functions.Card], l.Functions.Pool)
	}
	for _, l := range lanes {
		f := l.Functions
		if pool := pools[f.Card]; pool > 0 {
			steps = append(steps, journal.Step{Kind: kindPool, Target: f.Card, After: strconv.Itoa(pool)})
			delete(pools, f.Card)
		}
		for i, number := range f.Numbers {
			more, err := stepsOf(l, i, number)
			if err != nil {
				return nil, err
			}
			steps = append(steps, more...)
		}
	}
	return steps, nil
}

// stepsOf returns the steps that give a lane one of its virtual functions. The first one is its Device. The
// others have the numbers after it and no addresses: what they carry is up to the workload.
func stepsOf(l netpath.Lane, i, number int) ([]journal.Step, error) {
	inside, want := l.Inside(), settings{MAC: l.FunctionMAC(i), VLAN: l.VLAN.Outer, Spoof: true,
		Trust: l.VF.Trust, State: l.VF.State, Limited: l.Rate > 0 && l.Driver != lane.VFIO && i == 0}
	switch {
	case l.VLAN.Inner > 0:
		want.Proto = unix.ETH_P_8021AD
		inside = &netdev.Peer{Netns: inside.Netns, Name: below, MAC: want.MAC, MTU: inside.MTU}
	case want.VLAN > 0:
		want.Proto = unix.ETH_P_8021Q
	}
	if i > 0 {
		inside = &netdev.Peer{Netns: inside.Netns, Name: fmt.Sprint("eth", i), MAC: want.MAC, MTU: inside.MTU}
	}
	if l.Driver == lane.VFIO {
		inside, want.Rate = &netdev.Peer{Netns: inside.Netns}, uint32(l.Rate/mbit)
	}
	value, err := json.Marshal(function{Lane: inside, Settings: want})
	if err != nil {
		return nil, err
	}
	step := journal.Step{Kind: kindFunction, After: string(value),
		Target: target{l.Functions.Card, number, l.Netns()}.String()}
	switch {
	case l.Driver == lane.VFIO:
		return []journal.Step{step, {Kind: kindDriver, Target: step.Target,
			After: binding{l.Driver, l.Driver}.String()}}, nil
	case i > 0:
		return []journal.Step{step}, nil
	}
	return stepsWith(l, step, inside, want.Limited)
}

// below is the device of a function whose frames have a second tag, in the lane. The lane's own is on it.
const below = "vf0"

// stepsWith returns the steps of a lane's first function, around the one that gives it the function.
func stepsWith(l netpath.Lane, own journal.Step, inside *netdev.Peer, limited bool) ([]journal.Step, error) {
	var steps []journal.Step
	queued := l.Queues > 0 && !l.CPUs.IsEmpty()
	if total, err := (card{address: l.Functions.Card}).number(totalVectors); err == nil && total > 0 && queued {
		steps = append(steps, vectorsStep(own.Target, l.Queues))
	}
	made := []journal.Step{own}
	if l.VLAN.Inner > 0 {
		tagged, err := netdev.LinkStep(netpath.DeviceName("islv-", l.Name), netdev.Link{Type: netdev.VLAN,
			Tag: l.VLAN.Inner, Parent: below, Within: true, Peer: l.Inside()})
		if err != nil {
			return nil, err
		}
		made = append(made, tagged)
	}
	steps = append(steps, l.StepsWith(made...)...)
	if limited {
		steps = append(steps, limitStep(own.Target, l.Rate))
	}
	if queued {
		steps = append(steps, queues.Step(l.Netns(), inside.Name, l.Queues, l.CPUs))
	}
	return steps, nil
}
