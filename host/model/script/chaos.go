package script

import (
	"time"

	"github.com/dsh-web/dsh-web/host/model"
)

// Chaos misbehaves as real servers do, so that people can see how their presets take it: broken arguments, repeated ids, an unknown tool, a
// cut stream, a stall, an overload, an answer cut at its length. Each message of a person starts the round anew; which trouble comes depends
// on how many answers and attempts the request shows, and every trouble that ends a call is followed by a good answer.
func Chaos(o Options) Source {
	stall := o.Stall
	if stall == 0 {
		stall = 3 * time.Second
	}
	return func(r model.Request) (Turn, error) {
		_, after, _ := lastUser(r.Messages)
		t := tour{options: o, kit: kitOf(r.Tools)}
		shell := t.kit.shell
		if shell == "" && len(r.Tools) > 0 {
			shell = r.Tools[0].Name
		}
		// A retry carries the same history, so only the call's number tells it from the first attempt: it gives how many calls failed so far, or
		// since an agent that was resumed began to count anew.
		failed := r.Call - 1 - asked(r.Messages)
		third := (failed%3 + 3) % 3
		n := asked(r.Messages[after:])
		if shell == "" {
			n += 100 // no tools: only the troubles of text
		}
		switch {
		case n == 0:
			return append(Turn(t.speak("Chaos: first a call whose arguments are broken JSON. ")), Call("chaos", shell, `{"command": "echo one`)), nil
		case n == 1:
			return append(Turn(t.speak("Now two calls with one id, which was used before. ")), command("chaos", shell, "echo two"), command("chaos", shell, "echo three")), nil
		case n == 2:
			return append(Turn(t.speak("Now a tool that doesn't exist. ")), Call("", "no_such_tool", `{}`)), nil
		case n == 3 && third == 0:
			return append(Turn(t.speak("This answer is cut in the mid")), Cut()), nil
		case n == 3:
			return append(Turn(t.speak("After the cut the answer came whole. Next a stall. ")), command("", shell, "echo four")), nil
		case n == 4 && third == 1:
			return append(Turn(t.speak("A stall follows. ")), Pause(stall),
				Fail(&model.Error{Code: model.CodeTimeout, Message: "the script stalled for " + stall.String()})), nil
		case n == 4:
			return append(Turn(t.speak("The stall is over. Next the server is overloaded. ")), command("", shell, "echo five")), nil
		case n == 5 && third == 2, n == 100 && failed%2 == 0:
			return Turn{Fail(&model.Error{Code: model.CodeServer, Status: 529, Message: "the script is overloaded"})}, nil
		}
		return append(Turn(t.speak("That was all the trouble for this message; the answer ends at its length li")), Stop(model.StopMaxTokens)), nil
	}
}

func command(id, tool, text string) Step {
	return CallJSON(id, tool, map[string]string{"command": text})
}
