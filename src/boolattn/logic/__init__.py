"""What a Boolean query means, without a tensor: operators, cue words, trees and their sets.

May import: boolattn.errors.
"""
