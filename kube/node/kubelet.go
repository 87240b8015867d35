package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// notOffered is why this node offers no lanes, "" where it does.
func (n *Node) notOffered() string {
	if why := n.inConflict(); why != "" {
		return why
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dropped
}

// inConflict is what would give away the CPUs of lanes, and write its own cpusets over theirs: a manager of
// the kubelet that gives CPUs or memory to containers itself. Lanes that were offered before do not come
// either.
func (n *Node) inConflict() string {
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
	return ""
}

// HandleError logs what happens in the background. Where the API server does not store all that is offered,
// the scheduler would count wrongly, so nothing is offered from then on.
func (n *Node) HandleError(ctx context.Context, err error, msg string) {
	n.Log.ErrorContext(ctx, "kubelet plugin", "what", msg, "err", err)
	if dropped, is := errors.AsType[*resourceslice.DroppedFieldsError](err); is {
		n.mu.Lock()
		n.dropped = fmt.Sprintf("%v: no lanes are offered: switch these features on in the API server (without "+
			"DRADeviceBindingConditions alone, --answer=false is enough), and start isolane-kube again", dropped)
		n.mu.Unlock()
		n.kick()
	}
}
