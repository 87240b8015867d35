package node

import (
	"context"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isolane.dev/isolane/kube/offer"
)

// withheld is what a device does not offer for a time.
type withheld struct {
	most      map[resourceapi.QualifiedName]resource.Quantity // the most that a request may ask for
	until     time.Time
	notBefore time.Time // the earliest time to withhold it again
}

// Timing of withhold. The scheduler looks for an answer every five seconds, and a refused pod waits up to ten
// before its next try.
const (
	oneTry       = 15 * time.Second
	longestTries = 10 * time.Minute
)

// withhold makes the devices of refused claims offer less than these asked for, until the scheduler can have
// tried all other devices of the cluster. Otherwise it would score the nodes as before and ask the best one
// forever. Then the devices offer all for as long again, so that others get it if nobody can place that pod.
func (n *Node) withhold(ctx context.Context, claims []*resourceapi.ResourceClaim) error {
	now := time.Now()
	refused := map[string]withheld{}
	for _, c := range claims {
		for _, r := range offer.Results(c, n.Name) {
			w := refused[r.Device]
			if w.most == nil {
				w.most = map[resourceapi.QualifiedName]resource.Quantity{}
			}
			for _, name := range []resourceapi.QualifiedName{offer.CPUs, offer.Cores} {
				if less := r.ConsumedCapacity[name]; less.Value() > 0 {
					less.Sub(*resource.NewQuantity(1, resource.DecimalSI))
					if most, is := w.most[name]; !is || most.Cmp(less) < 0 {
						w.most[name] = less
					}
				}
			}
			if now.After(n.withheld[r.Device].notBefore) {
				refused[r.Device] = w
			}
		}
	}
	if len(refused) == 0 {
		return nil
	}
	others, err := n.otherDevices(ctx)
	if err != nil {
		return err
	}
	tries := min(time.Duration(others)*oneTry, longestTries)
	for device, w := range refused {
		w.until, w.notBefore = now.Add(tries), now.Add(2*tries)
		n.withheld[device] = w
	}
	return nil
}

// otherDevices returns how many devices the cluster has besides one of this node.
func (n *Node) otherDevices(ctx context.Context) (int, error) {
	slices, err := n.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + offer.Driver})
	if err != nil {
		return 0, err
	}
	others := -1
	for _, s := range slices.Items {
		others += len(s.Spec.Devices)
	}
	return max(0, others), nil
}

// limits returns the most that may now be asked for, by device.
func (n *Node) limits() map[string]map[resourceapi.QualifiedName]resource.Quantity {
	limits := map[string]map[resourceapi.QualifiedName]resource.Quantity{}
	for device, w := range n.withheld {
		if time.Now().Before(w.until) {
			limits[device] = w.most
		}
	}
	return limits
}
