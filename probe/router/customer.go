package router

import (
	"context"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// Run is a customer: it gets an address from the router at its device, asks the router for the server's
// address, and fetches from there. The attacker does not fetch.
func (p Probe) Run(ctx context.Context, given probe.Conditions) (m results.Measurement, err error) {
	device, err := netlink.LinkByName(uplink)
	if err != nil {
		return m, fmt.Errorf("%s, the customer's device: %w", uplink, err)
	}
	got, err := ask(device.Attrs())
	if err != nil {
		return m, fmt.Errorf("an address by DHCP: %w", err)
	}
	if err = got.use(device); err != nil {
		return m, err
	}
	if err = resolves(ctx, given.Address.Addr()); err != nil {
		return m, err
	}
	if p.Attack != "" && p.Attack != restart {
		return p.Attack.run(ctx, given, device.Attrs(), got)
	}
	watch, err := watchStrays(device.Attrs(), got)
	if err != nil {
		return m, err
	}
	defer watch.close()
	before, err := readBusy()
	if err != nil {
		return m, err
	}
	if m, err = p.Probe.Run(ctx, given); err != nil {
		return m, err
	}
	after, err := readBusy()
	if err != nil {
		return m, err
	}
	m.Values[given.Name+outside] = after.since(before)
	count, first, err := watch.count()
	if m.Values[given.Name+strays] = float64(count); count > 0 {
		m.Facts["firstStray"] = first
	}
	return m, err
}

// use sets the address of the device, with the router as the default route.
func (l leased) use(device netlink.Link) error {
	err := netlink.AddrReplace(device, &netlink.Addr{IPNet: &net.IPNet{IP: l.address.AsSlice(),
		Mask: net.CIDRMask(inside().Bits(), l.address.BitLen())}})
	if err != nil {
		return fmt.Errorf("address %s: %w", l.address, err)
	}
	if err = netlink.RouteReplace(&netlink.Route{LinkIndex: device.Attrs().Index,
		Gw: l.router.AsSlice()}); err != nil {
		return fmt.Errorf("route by %s: %w", l.router, err)
	}
	return nil
}

// busy has the ticks of the CPUs that this process may use.
type busy struct{ all, idle uint64 }

func readBusy() (sum busy, err error) {
	var may unix.CPUSet
	if err = unix.SchedGetaffinity(0, &may); err != nil {
		return sum, err
	}
	times, err := host.CPUTimes(host.Live())
	for cpu, t := range times {
		if may.IsSet(cpu) {
			sum.all += t.Busy + t.Interrupts + t.Idle + t.Steal
			sum.idle += t.Idle
		}
	}
	return sum, err
}

// since returns the percentage of the time in which the CPUs were not idle.
func (b busy) since(before busy) float64 {
	if b.all == before.all {
		return 0
	}
	return 100 * (1 - float64(b.idle-before.idle)/float64(b.all-before.all))
}
