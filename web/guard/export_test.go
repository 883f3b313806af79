package guard

// Redeem says whether a ticket is good, and uses it up.
func Redeem(k *Keys, value string) bool {
	_, ok := k.redeem(value)
	return ok
}

// Bound sets how many browsers may be logged in.
func Bound(k *Keys, n int) { k.max = n }
