package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lanes"
)

// whyNotOffered returns why this node offers no lanes, or "" if it offers them.
func (n *Node) whyNotOffered() string {
	if why := n.findConflict(); why != "" {
		return why
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.dropped != "":
		return n.dropped
	case !n.synchronized():
		return fmt.Sprintf("%s: the container runtime has never spoken with this plugin: no lanes are offered: "+
			"expected its socket for plugins (NRI, on since containerd 2.0), or another path as --nri", n.NRI)
	}
	return cmp.Or(n.whyNotRegistered(), n.whyImpossible)
}

// whyNotRegistered returns why the kubelet would not prepare claims of this driver, or "".
func (n *Node) whyNotRegistered() string {
	if n.kubelet == nil { // before it is asked
		return ""
	}
	status := n.kubelet.RegistrationStatus()
	if status.GetPluginRegistered() {
		return ""
	}
	return fmt.Sprintf("%s: the kubelet has not registered this driver (%s): no lanes are offered: expected "+
		"the kubelet's directory (--kubelet), and dynamic resource allocation in it (on since Kubernetes 1.34)",
		n.Kubelet, cmp.Or(status.GetError(), "it has not called"))
}

// synchronized reports whether the container runtime has called this plugin.
func (n *Node) synchronized() bool {
	select {
	case <-n.runtimeSynced:
		return true
	default:
		return false
	}
}

// markSynchronized records that the container runtime has called this plugin.
func (n *Node) markSynchronized() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.synchronized() {
		close(n.runtimeSynced)
		n.wakeWatch()
	}
}

// waitForOthers gives the container runtime and the kubelet time to connect. What an earlier run of this
// program has offered stays offered meanwhile.
func (n *Node) waitForOthers(ctx context.Context) {
	late, look := time.NewTimer(10*time.Second), time.NewTicker(100*time.Millisecond)
	defer late.Stop()
	defer look.Stop()
	for !n.synchronized() || n.whyNotRegistered() != "" {
		select {
		case <-look.C:
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// findImpossible returns why no lane is possible here, even if no other lane exists.
func (n *Node) findImpossible(l *lanes.Lanes) (string, error) {
	a, err := n.account(l, nil)
	if err != nil {
		return "", err
	}
	devices, err := offer.Node{Host: a.host, Pool: n.Name}.Devices()
	if err != nil || len(devices) > 0 {
		return "", err
	}
	return fmt.Sprintf("CPUs %s are all that lanes may have here, and stay housekeeping's: no lanes are "+
		"offered: expected a CPU beside those of the boot core (--cpus)", a.host.Usable()), nil
}

// findConflict returns what would give away the CPUs of lanes and overwrite their cpusets: a manager of the
// kubelet that assigns CPUs or memory to containers, or another driver or plugin that does. Lanes that were
// offered before are not prepared either.
func (n *Node) findConflict() string {
	for _, manager := range []string{"cpu", "memory"} {
		file := filepath.Join(n.Kubelet, manager+"_manager_state")
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kubelet without that manager, or before its first start
		}
		var state struct {
			PolicyName string `json:"policyName"`
		}
		if err == nil {
			err = json.Unmarshal(data, &state)
		}
		if err != nil {
			return fmt.Sprintf("%s: expected the state of the kubelet's manager: %v", file, err)
		}
		if !strings.EqualFold(state.PolicyName, "none") {
			return fmt.Sprintf("%s: the kubelet's policy is %q: no lanes are offered: set %sManagerPolicy: "+
				"none, remove the file and start the kubelet again", file, state.PolicyName, manager)
		}
	}
	if why := n.findOtherDriver(); why != "" {
		return why
	}
	return n.findOtherPlugin()
}

// HandleError logs errors that happen in the background. If the API server drops part of the offer, the
// scheduler would count wrongly, so nothing is offered from then on. If it drops only that claims count as
// CPUs of the node, containers must request these.
func (n *Node) HandleError(ctx context.Context, err error, msg string) {
	dropped, is := errors.AsType[*resourceslice.DroppedFieldsError](err)
	if is && droppedOnlyCounts(dropped) {
		n.Log.InfoContext(ctx, "containers ask for the CPUs of claims", "off", "DRANodeAllocatableResources")
	} else {
		n.Log.ErrorContext(ctx, "kubelet plugin", "what", msg, "err", err)
	}
	if !is {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.uncounted = true; !droppedOnlyCounts(dropped) {
		n.dropped = fmt.Sprintf("%v: no lanes are offered: switch these features on in the API server (without "+
			"DRADeviceBindingConditions alone, --answer=false is enough), and start isolane-kube again", dropped)
	}
	n.wakeWatch()
}

// droppedOnlyCounts reports whether the API server dropped only that claims count as CPUs of the node.
func droppedOnlyCounts(e *resourceslice.DroppedFieldsError) bool {
	want := e.DesiredSlice.Spec.DeepCopy()
	for i := range want.Devices {
		want.Devices[i].NodeAllocatableResources = nil
	}
	return equality.Semantic.DeepEqual(*want, e.ActualSlice.Spec)
}
